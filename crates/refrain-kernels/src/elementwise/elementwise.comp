// y = expression(x0, x1 …), element by element. `locate`, `load_inputs` and `evaluate` are generated.
layout(local_size_x_id = 0) in;
// Elements per invocation, a workgroup's width apart. All loads are issued before the first use.
layout(constant_id = 3) const uint ELEMENTS_EACH = 1;

void main() {
    uint first = group_number() * ELEMENTS_EACH * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    Inputs inputs[ELEMENTS_EACH];
    uint y_at[ELEMENTS_EACH];
    [[unroll]] for (uint k = 0u; k < ELEMENTS_EACH; k++) {
        uint at[WALKED];
        locate(min(first + k * gl_WorkGroupSize.x, push.count - 1u), at);
        y_at[k] = at[WALKED - 1u];
        inputs[k] = load_inputs(at);
    }
    [[unroll]] for (uint k = 0u; k < ELEMENTS_EACH; k++) {
        uint element = first + k * gl_WorkGroupSize.x;
        if (element < push.count) store_y(push.y, y_at[k], evaluate(element, inputs[k]));
    }
}
