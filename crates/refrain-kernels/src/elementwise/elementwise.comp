// y = expression(x0, x1 …), element by element. `locate`, `load_inputs` and `evaluate` are generated; with BY_FOURS, where
// four neighbouring elements are neighbours in each operand, `load_fours` and `inputs_of`, too.
layout(local_size_x_id = 0) in;
// Elements, or fours of them, per invocation, a workgroup's width apart. All loads are issued before the first use.
layout(constant_id = 3) const uint ITEMS_EACH = 1;

#ifdef BY_FOURS
const uint UNIT = 4u;
#define UNIT_INPUTS Fours
#define load_unit load_fours
#else
const uint UNIT = 1u;
#define UNIT_INPUTS Inputs
#define load_unit load_inputs
#endif

void main() {
    uint first = group_number() * ITEMS_EACH * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    UNIT_INPUTS inputs[ITEMS_EACH];
    uint y_at[ITEMS_EACH];
    [[unroll]] for (uint k = 0u; k < ITEMS_EACH; k++) {
        uint at[WALKED];
        locate(min(UNIT * (first + k * gl_WorkGroupSize.x), push.count - UNIT), at);
        y_at[k] = at[WALKED - 1u];
        inputs[k] = load_unit(at);
    }
    [[unroll]] for (uint k = 0u; k < ITEMS_EACH; k++) {
        uint element = UNIT * (first + k * gl_WorkGroupSize.x);
        if (element >= push.count) continue;
#ifdef BY_FOURS
        vec4 results;
        [[unroll]] for (uint j = 0u; j < 4u; j++) results[j] = evaluate(element + j, inputs_of(inputs[k], j));
        store4_y(push.y, y_at[k], results);
#else
        store_y(push.y, y_at[k], evaluate(element, inputs[k]));
#endif
    }
}
