// Epilogue of a fragment of results. FragmentEnd holds its inputs besides the sums.
struct FragmentEnd {
    Inputs inputs[ELEMENTS];
    float factors[ELEMENTS];
    uint elements[ELEMENTS];
};

FragmentEnd end_of(Block block, uint first, uint tile) {
    FragmentEnd end;
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = min(first + i / SUM_VALUES * ROWS_EACH + lane_row(), block.rows - 1u);
        uint t = min(token_of(tile, COLUMN_OF(lane_part(), i % SUM_VALUES)), TOKENS - 1u);
        end.factors[i] = pc.factors.at[vector_of(t)];
        end.inputs[i] = load_inputs(block.section, t, row);
        end.elements[i] = t * block.rows + row;
    }
    return end;
}

// Computes the results from the sums of each matrix.
void find_results(Block block, FragmentEnd end, float totals[PARTS][ELEMENTS], out float results[ELEMENTS]) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        float scaled[PARTS];
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) scaled[p] = totals[p][i] * end.factors[i];
        results[i] = result_of(block.section, end.elements[i], with_sums(end.inputs[i], scaled));
    }
}

#ifdef Y_WIDE
// Transposes 4 × 4 results among four lanes: from one result of each of four tokens to four consecutive results of one
// token. Lanes exchange pairs with the next lane, then with the one after it.
vec4 neighbours_of(vec4 values) {
    bool is_odd = (lane_row() & 1u) == 1u;
    vec2 came = subgroupShuffleXor(is_odd ? values.xz : values.yw, LANES_PER_ROW);
    vec4 pairs = is_odd ? vec4(came.x, values.y, came.y, values.w) : vec4(values.x, came.x, values.z, came.y);
    bool is_late = (lane_row() & 2u) == 2u;
    came = subgroupShuffleXor(is_late ? pairs.xy : pairs.zw, 2u * LANES_PER_ROW);
    return is_late ? vec4(came, pairs.zw) : vec4(pairs.xy, came);
}
#endif

// Computes and stores the results. Storing all of them at the end is a few per cent faster on an H200.
void finish(Block block, uint first, uint tile, FragmentEnd end, float totals[PARTS][ELEMENTS]) {
    float results[ELEMENTS];
    find_results(block, end, totals, results);
#ifdef Y_WIDE
    uint token = token_of(tile, COLUMN_OF(lane_part(), lane_row() % 4u));
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
        uint i = 4u * slot;
        vec4 neighbours = neighbours_of(vec4(results[i], results[i + 1u], results[i + 2u], results[i + 3u]));
        uint row = first + slot * ROWS_EACH + lane_row() / 4u * 4u;
        if (row < block.rows && token < TOKENS) store4_y(pc.y, token * Y_STRIDE + block.column + row, neighbours);
    }
#else
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = first + i / SUM_VALUES * ROWS_EACH + lane_row();
        uint token = token_of(tile, COLUMN_OF(lane_part(), i % SUM_VALUES));
        if (row < block.rows && token < TOKENS) {
            store_y(pc.y, token * Y_STRIDE + (block.column + row) * Y_WITHIN, results[i]);
        }
    }
#endif
}
