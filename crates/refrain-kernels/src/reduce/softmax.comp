// y = exp(x - top) / Σ exp(x - top) along each row. Reads the row three times.
DEFINE_COMBINE(max_lanes, max, subgroupMax)

void main() UNIFORM_FLOW {
    uint at[WALKED];
    start_of_row(at);
    float values[TOGETHER];
    float top = -3.4028235e38;
    for (uint column = lane(); column < push.columns; column += TOGETHER * LANES) {
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) top = max(top, values[k]);
    }
    top = max_lanes(top);
    float sum = 0.0;
    for (uint column = lane(); column < push.columns; column += TOGETHER * LANES) {
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            if (column + k * LANES < push.columns) sum += exp_of(values[k] - top);
        }
    }
    sum = sum_lanes(sum);
    if (row_number() >= push.rows) return;
    for (uint column = lane(); column < push.columns; column += TOGETHER * LANES) {
        load_columns(at[0], column, values);
        [[unroll]] for (uint k = 0u; k < TOGETHER; k++) {
            if (column + k * LANES >= push.columns) continue;
            uint along[WALKED];
            walk(push.record, push.inner, INNER_RANK, column + k * LANES, along);
            store_y(push.y, at[1] + along[1], exp_of(values[k] - top) / sum);
        }
    }
}
