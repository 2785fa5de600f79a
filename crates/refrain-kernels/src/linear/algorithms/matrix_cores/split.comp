// Some tokens: y[t, n] as for many, where the bytes of the weights matter more than the products. A workgroup
// takes TOKEN_TILES fragments of tokens and EACH rows of each matrix; its subgroups take blocks of k in turn, so
// that enough loads are under way, and their sums meet in shared memory, those of MET subgroups: before that, others
// add theirs to one of these. x comes through the caches.
const uint FRAGMENTS = MATRICES * TOKEN_TILES;

shared float partial[MET * FRAGMENTS * ELEMENTS * SUBGROUP];

uint partial_at(uint subgroup, uint fragment, uint i) {
    return ((subgroup * FRAGMENTS + fragment) * ELEMENTS + i) * SUBGROUP + gl_SubgroupInvocationID;
}

// Leaves a fragment's sums where they meet; `added`: beside the sums that lie there.
void leave(uint subgroup, uint fragment, float part[ELEMENTS], bool added) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint at = partial_at(subgroup, fragment, i);
        partial[at] = added ? part[i] + partial[at] : part[i];
    }
}

void meet_sums() {
#ifdef FOLDED
    float parts[FRAGMENTS][ELEMENTS];
    [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) part_of(f, parts[f]);
    if (gl_SubgroupID >= MET) {
        [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) leave(gl_SubgroupID - MET, f, parts[f], false);
    }
    barrier();
    if (gl_SubgroupID < MET) {
        bool has_partner = gl_SubgroupID + MET < SUBGROUPS;
        [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) leave(gl_SubgroupID, f, parts[f], has_partner);
    }
#else
    // Without a branch, at which what the end needs would be waited for.
    [[unroll]] for (uint f = 0u; f < FRAGMENTS; ++f) {
        float part[ELEMENTS];
        part_of(f, part);
        leave(gl_SubgroupID, f, part, false);
    }
#endif
    barrier();
}

// What this lane takes of each fragment.
Place places[TOKEN_TILES * LANE_WORDS];

void find_x() {
    [[unroll]] for (uint i = 0u; i < TOKEN_TILES * LANE_WORDS; ++i) {
        places[i] = place_of(i / LANE_WORDS, i % LANE_WORDS * SUBGROUP + gl_SubgroupInvocationID);
    }
}

// Of step `s` of a block of k, of both halves of x.
void load_step(uint b, uint s, out X_WORD words[HALVES][TOKEN_TILES * LANE_WORDS]) {
    [[unroll]] for (uint part = 0u; part < HALVES; ++part) {
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
#ifdef PINNED
        // A compiler that saves registers would ask for weights last of all, and wait for them at once; not beyond these.
        subgroupBarrier();
        X_WORD all_words[STEPS][HALVES][TOKEN_TILES * LANE_WORDS];
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) load_step(b, s, all_words[s]);
        subgroupBarrier();
#endif
        UNROLL for (uint s = 0u; s < STEPS; ++s) {
#ifdef PINNED
            X_WORD words[HALVES][TOKEN_TILES * LANE_WORDS] = all_words[s];
#else
            X_WORD words[HALVES][TOKEN_TILES * LANE_WORDS];
            load_step(b, s, words);
#endif
            [[unroll]] for (uint part = 0u; part < HALVES; ++part) {
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
    // Each subgroup finishes some of the fragments; what the first of them needs is under way while the sums meet.
    const uint JOBS = FRAGMENTS / PARTS;
    uint job = gl_SubgroupID;
    FragmentEnd end = end_of(block, block.row + job / TOKEN_TILES * FRAGMENT, job % TOKEN_TILES);
    meet_sums();
    for (; job < JOBS; job += SUBGROUPS) {
        uint number = job / TOKEN_TILES;
        uint tile = job % TOKEN_TILES;
        float totals[PARTS][ELEMENTS];
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                totals[p][i] = 0.0;
                UNROLL for (uint subgroup = 0u; subgroup < MET; ++subgroup) {
                    uint fragment = (number * PARTS + p) * TOKEN_TILES + tile;
                    totals[p][i] += partial[partial_at(subgroup, fragment, i)];
                }
            }
        }
        if (job != gl_SubgroupID) end = end_of(block, block.row + number * FRAGMENT, tile);
        finish(block, block.row + number * FRAGMENT, tile, end, totals);
    }
}
