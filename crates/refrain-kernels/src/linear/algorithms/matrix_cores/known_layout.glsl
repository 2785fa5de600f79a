// Fragments with a known layout: lanes set and read their elements directly.

// Returns the fragment of x whose words the lanes hold. It has one part.
B_FRAGMENT fragment_of(X_WORD words[LANE_WORDS], uint part) {
    B_FRAGMENT x;
    [[unroll]] for (uint i = 0u; i < WORD_HALVES / 2u; ++i) {
        f16vec2 pair = unpackFloat2x16(words[0][i]);
        x[2u * i] = pair.x;
        x[2u * i + 1u] = pair.y;
    }
    return x;
}

// Multiplies step `step` of the chunks with fragments of x and accumulates.
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

// Returns a lane's elements of accumulator fragment `number`.
void part_of(uint number, out float part[ELEMENTS]) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) part[i] = sums[number][i];
}
