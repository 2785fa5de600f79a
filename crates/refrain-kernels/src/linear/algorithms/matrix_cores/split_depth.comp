// GEMM whose subgroups split K (slice-K), for few tokens, where the bytes of the weights dominate. It computes the same
// y[t, n] as split_rows.comp. A workgroup computes TOKEN_TILES fragments of tokens and EACH rows of each matrix. Its
// subgroups take blocks of k round-robin, so that enough loads are in flight. Shared memory holds the partial sums of
// REDUCED_SUBGROUPS subgroups; the other subgroups first add theirs to those. x comes through the caches.
const uint FRAGMENTS = MATRICES * TOKEN_TILES;

shared float partial[REDUCED_SUBGROUPS * FRAGMENTS * ELEMENTS * SUBGROUP];

uint partial_at(uint subgroup, uint fragment, uint i) {
    return ((subgroup * FRAGMENTS + fragment) * ELEMENTS + i) * SUBGROUP + gl_SubgroupInvocationID;
}

// Stores a fragment's partial sums in shared memory, or adds them to the ones there if `added`.
void store_partial(uint subgroup, uint fragment, float part[ELEMENTS], bool added) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint at = partial_at(subgroup, fragment, i);
        partial[at] = added ? part[i] + partial[at] : part[i];
    }
}

void reduce_subgroups() {
#ifdef TWO_PHASE
    float parts[FRAGMENTS][ELEMENTS];
    [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) part_of(f, parts[f]);
    if (gl_SubgroupID >= REDUCED_SUBGROUPS) {
        [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) store_partial(gl_SubgroupID - REDUCED_SUBGROUPS, f, parts[f], false);
    }
    barrier();
    if (gl_SubgroupID < REDUCED_SUBGROUPS) {
        bool has_partner = gl_SubgroupID + REDUCED_SUBGROUPS < SUBGROUPS;
        [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) store_partial(gl_SubgroupID, f, parts[f], has_partner);
    }
#else
    // No branch here: the compiler would wait at it for the epilogue's loads.
    [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) {
        float part[ELEMENTS];
        part_of(f, part);
        store_partial(gl_SubgroupID, f, part, false);
    }
#endif
    barrier();
}

// Positions of this lane's words of each fragment.
Place places[TOKEN_TILES * LANE_WORDS];

void find_x() {
    [[unroll]] for (uint i = 0u; i < TOKEN_TILES * LANE_WORDS; ++i) {
        places[i] = place_of(i / LANE_WORDS, i % LANE_WORDS * SUBGROUP + gl_SubgroupInvocationID);
    }
}

// Loads step `s` of block `b` of k, for all terms of x.
void load_step(uint b, uint s, out X_WORD words[X_TERMS][TOKEN_TILES * LANE_WORDS]) {
    [[unroll]] for (uint part = 0u; part < X_TERMS; ++part) {
        uint step = (part * BLOCKS + b) * STEPS + s;
        [[unroll]] for (uint i = 0u; i < TOKEN_TILES * LANE_WORDS; ++i) words[part][i] = load_word(places[i], step);
    }
}

void main() UNIFORM_FLOW {
    Block block;
    if (!take(block)) return;
    uint blocks = blocks_of_k();
    clear_sums();
    Chunk next[MATRICES * SLOTS];
    load_weights(block, block.row, gl_SubgroupID, next);
    find_x();
    for (uint b = gl_SubgroupID; b < blocks; b += SUBGROUPS) {
        Chunk chunks[MATRICES * SLOTS] = next;
        load_weights(block, block.row, min(b + SUBGROUPS, blocks - 1u), next);
#ifdef PREFETCH
        // A compiler that saves registers would move the loads of weights to their use and wait there. Barriers prevent
        // it.
        subgroupBarrier();
        X_WORD all_words[STEPS][X_TERMS][TOKEN_TILES * LANE_WORDS];
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) load_step(b, s, all_words[s]);
        subgroupBarrier();
#endif
        UNROLL for (uint s = 0u; s < STEPS; ++s) {
#ifdef PREFETCH
            X_WORD words[X_TERMS][TOKEN_TILES * LANE_WORDS] = all_words[s];
#else
            X_WORD words[X_TERMS][TOKEN_TILES * LANE_WORDS];
            load_step(b, s, words);
#endif
            [[unroll]] for (uint part = 0u; part < X_TERMS; ++part) {
                B_FRAGMENT x[TOKEN_TILES * B_PARTS];
                [[unroll]] for (uint i = 0u; i < TOKEN_TILES * B_PARTS; ++i) {
                    X_WORD own[LANE_WORDS];
                    [[unroll]] for (uint w = 0u; w < LANE_WORDS; ++w) own[w] = words[part][i / B_PARTS * LANE_WORDS + w];
                    x[i] = fragment_of(own, i % B_PARTS);
                }
                multiply(chunks, s, x);
            }
        }
    }
    // Each subgroup finishes some fragments. The epilogue's loads for the first one overlap the reduction.
    const uint JOBS = FRAGMENTS / PARTS;
    uint job = gl_SubgroupID;
    FragmentEnd end = end_of(block, block.row + job / TOKEN_TILES * FRAGMENT, job % TOKEN_TILES);
    reduce_subgroups();
    for (; job < JOBS; job += SUBGROUPS) {
        uint number = job / TOKEN_TILES;
        uint tile = job % TOKEN_TILES;
        float totals[PARTS][ELEMENTS];
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                totals[p][i] = 0.0;
                UNROLL for (uint subgroup = 0u; subgroup < REDUCED_SUBGROUPS; ++subgroup) {
                    uint fragment = (number * PARTS + p) * TOKEN_TILES + tile;
                    totals[p][i] += partial[partial_at(subgroup, fragment, i)];
                }
            }
        }
        if (job != gl_SubgroupID) end = end_of(block, block.row + number * FRAGMENT, tile);
        finish(block, block.row + number * FRAGMENT, tile, end, totals);
    }
}
