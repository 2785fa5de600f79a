// out[element] = x[element] combined with the rows whose slot is the element's row.
layout(local_size_x_id = 0) in;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    rows_ref rows;
    slots_ref slots;
    out_ref out_;
    words_ref record;
    uint count;
    uint row_width;
    uint row_count;
    uint row_stride;
    uint slot_stride;
} push;

void main() {
    uint element = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (element >= push.count) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, element, at);
    uint row = element / push.row_width;
    COMPUTE_TYPE value = load_x(push.x, at[0]);
    for (uint t = 0u; t < push.row_count; t++) {
        if (uint(load_slots(push.slots, t * push.slot_stride)) == row) {
            COMPUTE_TYPE other = load_rows(push.rows, at[1] + t * push.row_stride);
            value = COMBINE(value, other);
        }
    }
    store_out(push.out_, at[2], value);
}
