// y[row] = FINISH(JOIN over the row's columns of LIFT(x)).
DEFINE_COMBINE(join_lanes, JOIN, SUBGROUP_JOIN)

void main() {
    uint at[WALKED];
    start_of_row(at);
    LANE_VALUE joined = IDENTITY;
    for (uint column = lane(); column < push.columns; column += TOGETHER * LANES) {
        X_VALUE values[TOGETHER];
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            if (column + k * LANES < push.columns) joined = JOIN(joined, LIFT(values[k]));
        }
    }
    joined = join_lanes(joined);
    if (row_number() < push.rows && lane() == 0u) store_y(push.y, at[1], FINISH(joined));
}
