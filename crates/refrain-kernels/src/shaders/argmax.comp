// y[row] = the first place of the row's largest element.
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
    uint rows;
    uint columns;
    uint inner;
} push;

DEFINE_COMBINE(max_lanes, max, subgroupMax)
DEFINE_COMBINE(min_lanes, min, subgroupMin)

const uint NOWHERE = 0xffffffffu;

void main() {
    uint row = group_number() * ROWS + row_in_group();
    // Rows beyond the last repeat it, so that all invocations meet at the barriers.
    uint at[WALKED];
    walk(push.record, 0u, min(row, push.rows - 1u), at);
    uint top = 0u, place = NOWHERE;
    for (uint column = lane(); column < push.columns; column += LANES) {
        uint along[WALKED];
        walk(push.record, push.inner, column, along);
        uint key = order_key(load_x(push.x, at[0] + along[0]));
        if (key > top || place == NOWHERE) {
            top = key;
            place = column;
        }
    }
    uint largest = max_lanes(top);
    uint first = min_lanes(top == largest ? place : NOWHERE);
    if (row < push.rows && lane() == 0u) store_y(push.y, at[1], first);
}
