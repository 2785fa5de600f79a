// y[row] = FINISH(COMBINE over the row's columns of LIFT(x)). Where workgroups split rows, each stores its partial
// result, which a second call takes as x.
DEFINE_COMBINE(combine_lanes, COMBINE, SUBGROUP_COMBINE)

#ifdef JOINED
#define ELEMENTS push.elements
#else
#define ELEMENTS push.columns
#endif

void main() UNIFORM_FLOW {
    uint at[WALKED];
    start_of_row(at);
    LANE_VALUE combined = IDENTITY;
    uint end = end_column();
    for (uint column = first_column() + lane(); column < end; column += TOGETHER * LANES) {
        X_VALUE values[TOGETHER];
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            if (column + k * LANES < end) combined = COMBINE(combined, LIFT(values[k]));
        }
    }
    combined = combine_lanes(combined);
    if (row_number() >= push.rows || lane() != 0u) return;
#ifdef SHARED_ROWS
    store_y(push.y, row_number() * push.parts + part_number(), combined);
#else
    store_y(push.y, at[1], FINISH(combined));
#endif
}
