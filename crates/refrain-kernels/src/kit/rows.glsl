// Shared code of row-wise kernels: their arguments, and loads of several columns at once.
layout(constant_id = 5) const uint OUTER_RANK = 1;
layout(constant_id = 6) const uint INNER_RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    // The dimensions of rows; from word `inner` on, the dimensions of columns.
    words_ref record;
    uint rows;
    uint columns;
    uint inner;
#ifdef SHARED_ROWS
    // Workgroups per row, and columns of each.
    uint parts;
    uint part_columns;
#endif
#ifdef JOINED
    // Number of elements behind the columns.
    uint elements;
#endif
} push;

// Columns that an invocation loads at once, so that their latencies overlap.
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

// Returns where the row starts in x and y. Rows beyond the last repeat it, so that all invocations reach the barriers.
void start_of_row(out uint at[WALKED]) {
    walk(push.record, 0u, OUTER_RANK, min(row_number(), push.rows - 1u), at);
}

// Loads columns column, column + LANES … of the row; those beyond the last repeat it.
void load_columns(uint start, uint column, out X_VALUE values[TOGETHER]) {
    [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
        uint along[WALKED];
        walk(push.record, push.inner, INNER_RANK, min(column + k * LANES, push.columns - 1u), along);
        values[k] = load_x(push.x, start + along[0]);
    }
}
