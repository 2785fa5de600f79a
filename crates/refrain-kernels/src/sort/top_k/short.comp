// y[row] = indices of the row's k largest elements, largest first, for rows that a workgroup holds.
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
#ifdef VALUES
    // Contiguous.
    v_ref values;
#endif
    uint rows;
    uint columns;
    uint x_stride;
    uint k;
    uint y_stride;
} push;

void main() UNIFORM_FLOW {
    uint row = group_number();
    if (row >= push.rows) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, row, at);
    for (uint element = gl_LocalInvocationIndex; element < 4u * FOURS; element += gl_WorkGroupSize.x) {
        uint key = 0u;
        if (element < push.columns) key = order_key(load_x(push.x, at[0] + element * push.x_stride));
        keys[element / 4u][element % 4u] = key;
    }
    find_foremost(push.k);
    for (uint i = gl_LocalInvocationIndex; i < candidate_count(push.k); i += gl_WorkGroupSize.x) {
        uint element = candidate(i);
        uint rank = place_of(element, push.k);
        if (rank >= push.k) continue;
        store_y(push.y, at[1] + rank * push.y_stride, element);
#ifdef VALUES
        store_v(push.values, row * push.k + rank, load_x(push.x, at[0] + element * push.x_stride));
#endif
    }
}
