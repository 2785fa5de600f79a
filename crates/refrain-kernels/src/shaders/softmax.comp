// y = exp(x - top) / Σ exp(x - top) along each row, reading the row three times.
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
    uint rows;
    uint columns;
    uint inner;
} push;

DEFINE_COMBINE(max_lanes, max, subgroupMax)

void main() {
    uint row = group_number() * ROWS + row_in_group();
    // Rows beyond the last repeat it, so that all invocations meet at the barriers.
    uint at[WALKED], along[WALKED];
    walk(push.record, 0u, min(row, push.rows - 1u), at);
    float top = -3.4028235e38;
    for (uint column = lane(); column < push.columns; column += LANES) {
        walk(push.record, push.inner, column, along);
        top = max(top, load_x(push.x, at[0] + along[0]));
    }
    top = max_lanes(top);
    float sum = 0.0;
    for (uint column = lane(); column < push.columns; column += LANES) {
        walk(push.record, push.inner, column, along);
        sum += exp_of(load_x(push.x, at[0] + along[0]) - top);
    }
    sum = sum_lanes(sum);
    if (row >= push.rows) return;
    for (uint column = lane(); column < push.columns; column += LANES) {
        walk(push.record, push.inner, column, along);
        store_y(push.y, at[1] + along[1], exp_of(load_x(push.x, at[0] + along[0]) - top) / sum);
    }
}
