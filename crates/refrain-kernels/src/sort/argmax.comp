// y[row] = the first index of the row's largest element. Where workgroups split rows, each stores the key of the largest
// element of its part and its index; with PAIRS, x is these pairs.
DEFINE_COMBINE(max_lanes, max, subgroupMax)
DEFINE_COMBINE(min_lanes, min, subgroupMin)

const uint NO_INDEX = 0xffffffffu;

void main() UNIFORM_FLOW {
    uint at[WALKED];
    start_of_row(at);
    uint top = 0u, index = NO_INDEX;
#ifdef PAIRS
    for (uint part = lane(); part < push.columns; part += LANES) {
        uint along[WALKED];
        walk(push.record, push.inner, INNER_RANK, part, along);
        uint key = load_x(push.x, at[0] + along[0]);
        uint found = load_x(push.x, at[0] + along[0] + 1u);
        if (key > top || (key == top && found < index)) {
            top = key;
            index = found;
        }
    }
#else
    uint end = end_column();
    for (uint column = first_column() + lane(); column < end; column += TOGETHER * LANES) {
        X_VALUE values[TOGETHER];
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            uint key = order_key(values[k]);
            if (column + k * LANES < end && (key > top || index == NO_INDEX)) {
                top = key;
                index = column + k * LANES;
            }
        }
    }
#endif
    uint largest = max_lanes(top);
    uint first = min_lanes(top == largest ? index : NO_INDEX);
    if (row_number() >= push.rows || lane() != 0u) return;
#ifdef SHARED_ROWS
    uint to = 2u * (row_number() * push.parts + part_number());
    store_y(push.y, to, largest);
    store_y(push.y, to + 1u, first);
#else
    store_y(push.y, at[1], first);
#endif
}
