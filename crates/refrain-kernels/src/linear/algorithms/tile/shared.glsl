// Tiles whose sums several workgroups share.
#if K_PARTS > 1
const uint OWN_FOURS = OWN_ROWS * COLUMN_FOURS / SLICES;
#ifdef NORM
// Behind an invocation's sums one for each of some rows of x.
const uint LEFT_FOURS = OWN_FOURS + (TILE_ROWS + THREADS - 1u) / THREADS;
uint left_of_row(uint part, uint row) { return four_at(part, OWN_FOURS + row / THREADS, LEFT_FOURS); }
#else
const uint LEFT_FOURS = OWN_FOURS;
#endif

// Where four sums of row i lie that this invocation left in workgroup `part`.
uint left_four_at(uint part, uint i, uint four) { return four_at(part, i / SLICES * COLUMN_FOURS + four, LEFT_FOURS); }

void leave_sums() {
    [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
        [[unroll]] for (uint four = 0u; four < COLUMN_FOURS; ++four) {
            vec4 sums = tile_sums[i * COLUMN_FOURS + four];
            if (i % SLICES == slice()) pc.left_sums.at[left_four_at(k_part(), i, four)] = sums;
        }
    }
}

void add_sums() {
    clear_tile();
    for (uint part = 0u; part < uint(K_PARTS); ++part) {
        [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
            [[unroll]] for (uint four = 0u; four < COLUMN_FOURS; ++four) {
                if (i % SLICES == slice()) tile_sums[i * COLUMN_FOURS + four] += pc.left_sums.at[left_four_at(part, i, four)];
            }
        }
    }
}
#endif
