// Accumulators, and loading of weights. The text before this one declares the arguments, Planes, Chunk with its
// functions, the layout of fragments, the workgroup's tokens, Inputs and the epilogue.

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer factors_ref { float at[]; };

SUMS sums[MATRICES * TOKEN_TILES * SUM_PARTS];

void clear_sums() {
    [[unroll]] for (uint i = 0u; i < MATRICES * TOKEN_TILES * SUM_PARTS; ++i) sums[i] = SUMS(0.0);
}

void load_weights(Block block, uint first, uint number, out Chunk chunks[MATRICES * SLOTS]) {
    uint c = min(number * LANES_PER_ROW + lane_part(), COLUMNS / CHUNK - 1u);
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            uint n = min(first + m / PARTS * FRAGMENT + slot * ROWS_EACH + lane_row(), block.rows - 1u);
            Planes planes = planes_of(block.section, m % PARTS);
            chunks[m * SLOTS + slot] = load_chunk(planes, matrix_row(block, n), c);
        }
    }
}
