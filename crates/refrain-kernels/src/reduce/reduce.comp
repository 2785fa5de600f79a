// y[row] = FINISH(JOIN over the row's columns of LIFT(x)). Where workgroups share rows, each leaves what
// it joined to a second call, which is given that as x.
DEFINE_COMBINE(join_lanes, JOIN, SUBGROUP_JOIN)

#ifdef JOINED
#define ELEMENTS push.elements
#else
#define ELEMENTS push.columns
#endif

void main() UNIFORM_FLOW {
    uint at[WALKED];
    start_of_row(at);
    LANE_VALUE joined = IDENTITY;
    uint end = end_column();
    for (uint column = first_column() + lane(); column < end; column += TOGETHER * LANES) {
        X_VALUE values[TOGETHER];
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            if (column + k * LANES < end) joined = JOIN(joined, LIFT(values[k]));
        }
    }
    joined = join_lanes(joined);
    if (row_number() >= push.rows || lane() != 0u) return;
#ifdef SHARED_ROWS
    store_y(push.y, row_number() * push.parts + part_number(), joined);
#else
    store_y(push.y, at[1], FINISH(joined));
#endif
}
