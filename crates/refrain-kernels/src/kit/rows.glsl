// What kernels that work row by row share: their arguments, and loading several columns at once.
layout(constant_id = 5) const uint OUTER_RANK = 1;
layout(constant_id = 6) const uint INNER_RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    // The rows' dimensions, then, from word `inner` on, the columns'.
    words_ref record;
    uint rows;
    uint columns;
    uint inner;
#ifdef SHARED_ROWS
    // Workgroups that share a row, and columns of each.
    uint parts;
    uint part_columns;
#endif
#ifdef JOINED
    // Elements that the columns stand for.
    uint elements;
#endif
} push;

// Columns that an invocation loads together, so that it waits once for all.
const uint TOGETHER = 4;

#ifdef SHARED_ROWS
uint part_number() { return group_number() % push.parts; }
uint group_of_rows() { return group_number() / push.parts; }
uint first_column() { return part_number() * push.part_columns; }
uint end_column() { return min(first_column() + push.part_columns, push.columns); }
#else
uint group_of_rows() { return group_number(); }
uint first_column() { return 0u; }
uint end_column() { return push.columns; }
#endif

// This invocation's row, which may be beyond the last.
uint row_number() { return group_of_rows() * ROWS + row_in_group(); }

// Where the row starts in x and y. Rows beyond the last repeat it, so that all invocations meet at
// the barriers.
void start_of_row(out uint at[WALKED]) {
    walk(push.record, 0u, OUTER_RANK, min(row_number(), push.rows - 1u), at);
}

// Columns column, column + LANES … of the row; those beyond the last repeat it.
void load_columns(uint start, uint column, out X_VALUE values[TOGETHER]) {
    [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
        uint along[WALKED];
        walk(push.record, push.inner, INNER_RANK, min(column + k * LANES, push.columns - 1u), along);
        values[k] = load_x(push.x, start + along[0]);
    }
}
