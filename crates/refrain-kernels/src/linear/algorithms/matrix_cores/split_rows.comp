// GEMM whose subgroups split the rows, for many tokens: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of
// PARTS matrices w). A workgroup computes TOKEN_TILES fragments of tokens and, of each matrix, EACH rows per subgroup.
// Weights go from memory to registers and become fragments there, so a workgroup reads and dequantises each of them
// once. x goes through shared memory with double buffering; a pipeline stage is STAGE fragments deep.

// 16-byte words per stage.
const uint STAGED = STAGE * TOKEN_TILES * FRAGMENT_WORDS;
const uint STAGED_EACH = STAGED / (SUBGROUPS * SUBGROUP);

#ifdef OPAQUE_LAYOUT
// A word is two f16vec4s.
shared f16vec4 x_staged[2u * STAGED * 2u];

void stage_x(uint at, uvec4 word) {
    x_staged[2u * at] = four_of(word.x, word.y);
    x_staged[2u * at + 1u] = four_of(word.z, word.w);
}

// Loads part `part` of the fragment at position `at`.
B_FRAGMENT staged_x(uint at, uint part) {
    B_FRAGMENT x;
    coopMatLoad(x, x_staged, 2u * at + x_part_at(part), ROW_FOURS, gl_CooperativeMatrixLayoutColumnMajor);
    return x;
}
#else
shared uvec4 x_staged[2u * STAGED];

void stage_x(uint at, uvec4 word) { x_staged[at] = word; }

B_FRAGMENT staged_x(uint at, uint part) {
    return fragment_of(uvec4[LANE_WORDS](x_staged[at + gl_SubgroupInvocationID]), part);
}
#endif

// Positions of the words that this invocation copies for each stage.
Place places[STAGED_EACH];

void find_x() {
    [[unroll]] for (uint i = 0u; i < STAGED_EACH; ++i) {
        uint e = (gl_LocalInvocationIndex + i * SUBGROUPS * SUBGROUP) % (TOKEN_TILES * FRAGMENT_WORDS);
        places[i] = place_of(e / FRAGMENT_WORDS, e % FRAGMENT_WORDS);
    }
}

void load_x(uint number, out uvec4 staged[STAGED_EACH]) {
    [[unroll]] for (uint i = 0u; i < STAGED_EACH; ++i) {
        uint e = gl_LocalInvocationIndex + i * SUBGROUPS * SUBGROUP;
        staged[i] = load_word(places[i], number * STAGE + e / (TOKEN_TILES * FRAGMENT_WORDS));
    }
}

void store_x(uint side, uvec4 staged[STAGED_EACH]) {
    [[unroll]] for (uint i = 0u; i < STAGED_EACH; ++i) {
        stage_x(side + gl_LocalInvocationIndex + i * SUBGROUPS * SUBGROUP, staged[i]);
    }
}

#if K_SPLITS > 1
// Split-K reduction. Returns true in the last workgroup of the tile, which then holds the sums of all splits.
bool reduce_splits() {
    const uint FOURS = MATRICES * TOKEN_TILES * ELEMENTS / 4u;
    [[unroll]] for (uint i = 0u; i < FOURS; ++i) {
        vec4 four;
        [[unroll]] for (uint j = 0u; j < 4u; ++j) four[j] = sums[4u * i / ELEMENTS][4u * i % ELEMENTS + j];
        pc.partial_sums.at[partial_sum_at(k_split(), i, FOURS)] = four;
    }
    if (!arrives_last()) return false;
    [[unroll]] for (uint i = 0u; i < FOURS; ++i) {
        vec4 total = vec4(0.0);
        [[unroll]] for (uint part = 0u; part < uint(K_SPLITS); ++part) total += pc.partial_sums.at[partial_sum_at(part, i, FOURS)];
        [[unroll]] for (uint j = 0u; j < 4u; ++j) sums[4u * i / ELEMENTS][4u * i % ELEMENTS + j] = total[j];
    }
    return true;
}
#endif

void main() UNIFORM_FLOW {
    Block block;
    if (!take(block)) return;
    uint all = blocks_of_k();
    uint begin = all * k_split() / uint(K_SPLITS);
    uint end = all * (k_split() + 1u) / uint(K_SPLITS);
    uint first = block.row + gl_SubgroupID * EACH;
    clear_sums();
    const uint stages = STEPS / STAGE;
    Chunk next[MATRICES * SLOTS];
    uvec4 staged[STAGED_EACH];
    load_weights(block, first, begin, next);
    find_x();
    load_x(begin * stages, staged);
    store_x(0u, staged);
    barrier();
    uint side = 0u;
    for (uint b = begin; b < end; ++b) {
        Chunk chunks[MATRICES * SLOTS] = next;
        load_weights(block, first, min(b + 1u, end - 1u), next);
        UNROLL for (uint stage = 0u; stage < stages; ++stage) {
            load_x(min(b * stages + stage + 1u, end * stages - 1u), staged);
            UNROLL for (uint s = 0u; s < STAGE; ++s) {
                B_FRAGMENT x[TOKEN_TILES * B_PARTS];
                [[unroll]] for (uint i = 0u; i < TOKEN_TILES * B_PARTS; ++i) {
                    x[i] = staged_x(side + (s * TOKEN_TILES + i / B_PARTS) * FRAGMENT_WORDS, i % B_PARTS);
                }
                multiply(chunks, stage * STAGE + s, x);
            }
            side ^= STAGED;
            store_x(side, staged);
            barrier();
        }
    }
#if K_SPLITS > 1
    if (!reduce_splits()) return;
#endif
    [[unroll]] for (uint number = 0u; number < MATRICES / PARTS; ++number) {
        uint row = first + number * FRAGMENT;
        [[unroll]] for (uint tile = 0u; tile < TOKEN_TILES; ++tile) {
            float totals[PARTS][ELEMENTS];
            [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
                part_of((number * PARTS + p) * TOKEN_TILES + tile, totals[p]);
            }
            finish(block, row, tile, end_of(block, row, tile), totals);
        }
    }
}
