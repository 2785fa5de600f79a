// y = expression(x0, x1 …), element by element: `evaluate` and `place` are generated.
layout(local_size_x_id = 0) in;
// Elements per invocation, a workgroup's width apart.
layout(constant_id = 3) const uint ITEMS = 1;

void main() {
    uint first = group_number() * ITEMS * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    for (uint item = 0u; item < ITEMS; item++) {
        uint element = first + item * gl_WorkGroupSize.x;
        if (element >= push.count) return;
        uint at[WALKED];
        place(element, at);
        store_y(push.y, at[WALKED - 1u], evaluate(element, at));
    }
}
