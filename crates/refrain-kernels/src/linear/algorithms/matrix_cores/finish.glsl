// The results of a fragment of rows, from `first` on, and of tokens, from the sums of each part.
void find_results(Block block, uint first, uint tile, float totals[PARTS][ELEMENTS], out float results[ELEMENTS]) {
    Inputs inputs[ELEMENTS];
    float factors[ELEMENTS];
    uint elements[ELEMENTS];
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = min(first + i / VALUES * ROWS_EACH + lane_row(), block.rows - 1u);
        uint t = min(token_of(tile, COLUMN_OF(lane_part(), i % VALUES)), TOKENS - 1u);
        factors[i] = pc.factors.at[vector_of(t)];
        inputs[i] = load_inputs(block.section, t, row);
        elements[i] = t * block.rows + row;
    }
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        float scaled[PARTS];
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) scaled[p] = totals[p][i] * factors[i];
        results[i] = result_of(block.section, elements[i], with_sums(inputs[i], scaled));
    }
}

// Stores them: all together, as that is a few per cent faster on an H200 than each where it is found.
void finish(Block block, uint first, uint tile, float totals[PARTS][ELEMENTS]) {
    float results[ELEMENTS];
    find_results(block, first, tile, totals, results);
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = first + i / VALUES * ROWS_EACH + lane_row();
        uint token = token_of(tile, COLUMN_OF(lane_part(), i % VALUES));
        if (row < block.rows && token < TOKENS) {
            store_y(pc.y, token * Y_STRIDE + (block.column + row) * Y_WITHIN, results[i]);
        }
    }
}
