// y[row] = FINISH(JOIN over the row's columns of LIFT(x)).
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
    uint rows;
    uint columns;
    uint inner;
} push;

DEFINE_COMBINE(join_lanes, JOIN, SUBGROUP_JOIN)

void main() {
    uint row = group_number() * ROWS + row_in_group();
    // Rows beyond the last repeat it, so that all invocations meet at the barriers.
    uint at[WALKED];
    walk(push.record, 0u, min(row, push.rows - 1u), at);
    LANE_VALUE joined = IDENTITY;
    for (uint column = lane(); column < push.columns; column += LANES) {
        uint along[WALKED];
        walk(push.record, push.inner, column, along);
        joined = JOIN(joined, LIFT(load_x(push.x, at[0] + along[0])));
    }
    joined = join_lanes(joined);
    if (row < push.rows && lane() == 0u) store_y(push.y, at[1], FINISH(joined));
}
