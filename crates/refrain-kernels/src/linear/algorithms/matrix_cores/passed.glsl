// Fragments whose order is hidden: lanes share a part of shared memory with their subgroup, where a fragment lies row by
// row and a lane has VALUES neighbours of each of its rows, and from there the cores load its parts.
shared f16vec4 passed[SUBGROUPS * MATRICES * FRAGMENT_WORDS * 2u];
shared float passed_sums[SUBGROUPS * FRAGMENT * FRAGMENT];

// Fours of a row.
const uint ROW_FOURS = FRAGMENT / 4u;

// Where fragment `number` of the subgroup's begins, and a lane's word of it.
uint passed_at(uint number) { return (gl_SubgroupID * MATRICES + number) * FRAGMENT_WORDS * 2u; }
uint word_at(uint number, uint word) { return passed_at(number) + 2u * (word * SUBGROUP + gl_SubgroupInvocationID); }

// Where part `part` of a fragment of x begins in it, in fours: parts along k, of each those along tokens.
uint x_part_at(uint part) {
    return (part % COLUMN_PARTS * PART_COLUMNS * FRAGMENT + part / COLUMN_PARTS * PART_DEPTH) / 4u;
}

// Part `part` of the fragment of x of which each lane has words: to be asked for one after another.
B_FRAGMENT fragment_of(X_WORD words[LANE_WORDS], uint part) {
    if (part == 0u) {
        [[unroll]] for (uint word = 0u; word < LANE_WORDS; ++word) {
            uint at = word_at(0u, word);
            passed[at] = four_of(words[word].x, words[word].y);
            passed[at + 1u] = four_of(words[word].z, words[word].w);
        }
        meet();
    }
    B_FRAGMENT x;
    coopMatLoad(x, passed, passed_at(0u) + x_part_at(part), ROW_FOURS, gl_CooperativeMatrixLayoutColumnMajor);
    if (part == B_PARTS - 1u) meet();
    return x;
}

// Adds the products of step `step` of the chunks with fragments of x.
void multiply(Chunk chunks[MATRICES * SLOTS], uint step, B_FRAGMENT x[TOKEN_TILES * B_PARTS]) {
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            f16vec2 pairs[4];
            [[unroll]] for (uint i = 0u; i < 4u; ++i) pairs[i] = chunk_pair(chunks[m * SLOTS + slot], step * 4u + i);
            uint at = word_at(m, slot);
            passed[at] = f16vec4(pairs[0], pairs[1]);
            passed[at + 1u] = f16vec4(pairs[2], pairs[3]);
        }
    }
    meet();
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint part = 0u; part < ROW_PARTS * DEPTH_PARTS; ++part) {
            uint row = part / DEPTH_PARTS;
            uint depth = part % DEPTH_PARTS;
            A_FRAGMENT w;
            uint at = passed_at(m) + (row * PART_ROWS * FRAGMENT + depth * PART_DEPTH) / 4u;
            coopMatLoad(w, passed, at, ROW_FOURS, gl_CooperativeMatrixLayoutRowMajor);
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

// A lane's part of fragment `number` of sums.
void part_of(uint number, out float part[ELEMENTS]) {
    uint begin = gl_SubgroupID * FRAGMENT * FRAGMENT;
    [[unroll]] for (uint i = 0u; i < SUM_PARTS; ++i) {
        uint at = begin + i / COLUMN_PARTS * PART_ROWS * FRAGMENT + i % COLUMN_PARTS * PART_COLUMNS;
        coopMatStore(sums[number * SUM_PARTS + i], passed_sums, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
    }
    meet();
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint row = i / VALUES * ROWS_EACH + lane_row();
        part[i] = passed_sums[begin + row * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES)];
    }
    meet();
}
