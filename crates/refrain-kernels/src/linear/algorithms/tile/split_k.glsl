// Split-K of tiles: partial sums in memory.
#if K_SPLITS > 1
const uint OWN_FOURS = OWN_ROWS * COLUMN_FOURS / SLICES;
#ifdef NORM
// An invocation's sums are followed by the sums of squares of some rows of x.
const uint LEFT_FOURS = OWN_FOURS + (TILE_ROWS + THREADS - 1u) / THREADS;
uint partial_squares_at(uint part, uint row) { return partial_sum_at(part, OWN_FOURS + row / THREADS, LEFT_FOURS); }
#else
const uint LEFT_FOURS = OWN_FOURS;
#endif

// Position of this invocation's vec4 `four` of row i in split `part`.
uint tile_partial_sum_at(uint part, uint i, uint four) { return partial_sum_at(part, i / SLICES * COLUMN_FOURS + four, LEFT_FOURS); }

void store_partial_sums() {
    [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
        [[unroll]] for (uint four = 0u; four < COLUMN_FOURS; ++four) {
            vec4 sums = tile_sums[i * COLUMN_FOURS + four];
            if (i % SLICES == slice()) pc.partial_sums.at[tile_partial_sum_at(k_split(), i, four)] = sums;
        }
    }
}

void add_sums() {
    clear_tile();
    for (uint part = 0u; part < uint(K_SPLITS); ++part) {
        [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
            [[unroll]] for (uint four = 0u; four < COLUMN_FOURS; ++four) {
                if (i % SLICES == slice()) tile_sums[i * COLUMN_FOURS + four] += pc.partial_sums.at[tile_partial_sum_at(part, i, four)];
            }
        }
    }
}
#endif
