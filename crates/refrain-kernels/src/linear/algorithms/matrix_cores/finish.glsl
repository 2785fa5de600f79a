// Stores the results of a fragment of rows, from `first` on, and of tokens; of each part its sums.
void finish(Block block, uint first, uint tile, float totals[PARTS][ELEMENTS]) {
    uint line = lane_part();
    Inputs inputs[ELEMENTS];
    float factors[ELEMENTS];
    uint rows[ELEMENTS];
    uint tokens[ELEMENTS];
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        rows[i] = first + i / VALUES * ROWS_EACH + lane_row();
        tokens[i] = token_of(tile, COLUMN_OF(line, i % VALUES));
        uint t = min(tokens[i], TOKENS - 1u);
        factors[i] = pc.factors.at[vector_of(t)];
        inputs[i] = load_inputs(block.section, t, min(rows[i], block.rows - 1u));
    }
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        float scaled[PARTS];
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) scaled[p] = totals[p][i] * factors[i];
        if (rows[i] < block.rows && tokens[i] < TOKENS) {
            uint at = tokens[i] * Y_STRIDE + (block.column + rows[i]) * Y_WITHIN;
            uint element = tokens[i] * block.rows + rows[i];
            store_y(pc.y, at, result_of(block.section, element, with_sums(inputs[i], scaled)));
        }
    }
}
