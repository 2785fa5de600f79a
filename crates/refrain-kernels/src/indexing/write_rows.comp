// state[slots[t]] = rows[t]; a slot outside the state is skipped.
layout(local_size_x_id = 0) in;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    rows_ref rows;
    slots_ref slots;
    state_ref state;
    words_ref record;
    uint count;
    uint slot_count;
    uint row_width;
} push;

void main() {
    uint element = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (element >= push.count) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, element, at);
    // A negative slot becomes a large unsigned one.
    uint slot = uint(load_slots(push.slots, at[1]));
    if (slot >= push.slot_count) return;
    store_state(push.state, at[2] + slot * push.row_width, load_rows(push.rows, at[0]));
}
