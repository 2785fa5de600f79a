// y = expression(x0, x1 …), element by element: `place`, `load_inputs` and `evaluate` are generated.
layout(local_size_x_id = 0) in;
// Elements per invocation, a workgroup's width apart, loaded together.
layout(constant_id = 3) const uint TOGETHER = 1;

void main() {
    uint first = group_number() * TOGETHER * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    Inputs inputs[TOGETHER];
    uint places[TOGETHER];
    [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
        uint at[WALKED];
        place(min(first + k * gl_WorkGroupSize.x, push.count - 1u), at);
        places[k] = at[WALKED - 1u];
        inputs[k] = load_inputs(at);
    }
    [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
        uint element = first + k * gl_WorkGroupSize.x;
        if (element < push.count) store_y(push.y, places[k], evaluate(element, inputs[k]));
    }
}
