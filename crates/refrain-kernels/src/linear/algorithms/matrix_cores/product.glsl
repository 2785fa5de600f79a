// Fragments of weights, of packed x and of sums. Declared elsewhere: the arguments, Planes, Chunk and how chunks
// are loaded and unpacked, the order of fragments, the workgroup's tokens, Inputs and the epilogue.

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer factors_ref { float at[]; };

SUMS sums[MATRICES * TOKEN_TILES];

void clear_sums() {
    [[unroll]] for (uint i = 0u; i < MATRICES * TOKEN_TILES; ++i) sums[i] = SUMS(0.0);
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

// A lane's part of a fragment of x.
B_FRAGMENT fragment_of(uvec4 bits) {
    B_FRAGMENT x;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        f16vec2 pair = unpackFloat2x16(bits[i]);
        x[2u * i] = pair.x;
        x[2u * i + 1u] = pair.y;
    }
    return x;
}

// Adds the products of step `step` of the chunks with fragments of x.
void multiply(Chunk chunks[MATRICES * SLOTS], uint step, B_FRAGMENT x[TOKEN_TILES]) {
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        A_FRAGMENT w;
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
#if VALUES == 1
            w[slot] = chunk_pair(chunks[m * SLOTS + slot], step / 2u)[step % 2u];
#else
            [[unroll]] for (uint i = 0u; i < VALUES; i += 2u) {
                f16vec2 pair = chunk_pair(chunks[m * SLOTS + slot], (step * VALUES + i) / 2u);
                w[slot * VALUES + i] = pair.x;
                w[slot * VALUES + i + 1u] = pair.y;
            }
#endif
        }
        [[unroll]] for (uint tile = 0u; tile < TOKEN_TILES; ++tile) {
            if (is_used(tile)) sums[m * TOKEN_TILES + tile] = coopMatMulAdd(w, x[tile], sums[m * TOKEN_TILES + tile]);
        }
    }
}

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
