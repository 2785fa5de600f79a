// y[row] = the first index of the row's largest element.
DEFINE_COMBINE(max_lanes, max, subgroupMax)
DEFINE_COMBINE(min_lanes, min, subgroupMin)

const uint NO_INDEX = 0xffffffffu;

void main() UNIFORM_FLOW {
    uint at[WALKED];
    start_of_row(at);
    uint top = 0u, index = NO_INDEX;
    for (uint column = lane(); column < push.columns; column += TOGETHER * LANES) {
        X_VALUE values[TOGETHER];
        load_columns(at[0], column, values);
        // A repeated last column is never larger than itself.
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            uint key = order_key(values[k]);
            if (key > top || index == NO_INDEX) {
                top = key;
                index = min(column + k * LANES, push.columns - 1u);
            }
        }
    }
    uint largest = max_lanes(top);
    uint first = min_lanes(top == largest ? index : NO_INDEX);
    if (row_number() < push.rows && lane() == 0u) store_y(push.y, at[1], first);
}
