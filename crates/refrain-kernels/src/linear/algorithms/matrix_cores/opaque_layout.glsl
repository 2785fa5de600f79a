// Fragments with an opaque layout. Each subgroup has a part of shared memory. Lanes store fragments there row by row,
// VALUES consecutive values of each of their rows, and the matrix cores load parts of the fragments from there.
shared f16vec4 staged_fragments[SUBGROUPS * MATRICES * FRAGMENT_WORDS * 2u];
shared float staged_sums[SUBGROUPS * FRAGMENT * FRAGMENT];

// vec4s per row.
const uint ROW_FOURS = FRAGMENT / 4u;

// Start of fragment `number` of the subgroup, and position of a lane's word in it.
uint staged_at(uint number) { return (gl_SubgroupID * MATRICES + number) * FRAGMENT_WORDS * 2u; }
uint word_at(uint number, uint word) { return staged_at(number) + 2u * (word * SUBGROUP + gl_SubgroupInvocationID); }

// Offset of part `part` in a fragment of x, in vec4s. Parts are ordered along k, then along tokens.
uint x_part_at(uint part) {
    return (part % COLUMN_PARTS * PART_COLUMNS * FRAGMENT + part / COLUMN_PARTS * PART_DEPTH) / 4u;
}

// Returns part `part` of the fragment of x whose words the lanes hold. Parts must be requested in order.
B_FRAGMENT fragment_of(X_WORD words[LANE_WORDS], uint part) {
    if (part == 0u) {
        [[unroll]] for (uint word = 0u; word < LANE_WORDS; ++word) {
            uint at = word_at(0u, word);
            staged_fragments[at] = four_of(words[word].x, words[word].y);
            staged_fragments[at + 1u] = four_of(words[word].z, words[word].w);
        }
        meet();
    }
    B_FRAGMENT x;
    coopMatLoad(x, staged_fragments, staged_at(0u) + x_part_at(part), ROW_FOURS, gl_CooperativeMatrixLayoutColumnMajor);
    if (part == B_PARTS - 1u) meet();
    return x;
}

// Multiplies step `step` of the chunks with fragments of x and accumulates.
void multiply(Chunk chunks[MATRICES * SLOTS], uint step, B_FRAGMENT x[TOKEN_TILES * B_PARTS]) {
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            f16vec2 pairs[4];
            [[unroll]] for (uint i = 0u; i < 4u; ++i) pairs[i] = chunk_pair(chunks[m * SLOTS + slot], step * 4u + i);
            uint at = word_at(m, slot);
            staged_fragments[at] = f16vec4(pairs[0], pairs[1]);
            staged_fragments[at + 1u] = f16vec4(pairs[2], pairs[3]);
        }
    }
    meet();
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint part = 0u; part < ROW_PARTS * DEPTH_PARTS; ++part) {
            uint row = part / DEPTH_PARTS;
            uint depth = part % DEPTH_PARTS;
            A_FRAGMENT w;
            uint at = staged_at(m) + (row * PART_ROWS * FRAGMENT + depth * PART_DEPTH) / 4u;
            coopMatLoad(w, staged_fragments, at, ROW_FOURS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint tile = 0u; tile < TOKEN_TILES; ++tile) {
                [[unroll]] for (uint column = 0u; column < COLUMN_PARTS; ++column) {
                    uint sum = (m * TOKEN_TILES + tile) * SUM_PARTS + row * COLUMN_PARTS + column;
                    uint part_of_x = tile * B_PARTS + depth * COLUMN_PARTS + column;
                    if (is_used(tile)) sums[sum] = coopMatMulAdd(w, x[part_of_x], sums[sum]);
                }
            }
        }
    }
    meet();
}

// Returns a lane's elements of accumulator fragment `number`.
void part_of(uint number, out float part[ELEMENTS]) {
    uint begin = gl_SubgroupID * FRAGMENT * FRAGMENT;
    [[unroll]] for (uint i = 0u; i < SUM_PARTS; ++i) {
        uint at = begin + i / COLUMN_PARTS * PART_ROWS * FRAGMENT + i % COLUMN_PARTS * PART_COLUMNS;
        coopMatStore(sums[number * SUM_PARTS + i], staged_sums, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
    }
    meet();
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = i / VALUES * ROWS_EACH + lane_row();
        part[i] = staged_sums[begin + row * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES)];
    }
    meet();
}
