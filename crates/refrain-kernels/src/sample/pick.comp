// One workgroup samples a sequence's token and advances to it.
const uint FINISHED = 0xffffffffu, NOT_A_NUMBER = 0xfffffffeu;
const uint ALL_BLOCKS = 0xffffffffu;

shared uint active_blocks[WIDTH];
shared uint active_count;
shared uint collected;
shared uint lowest_key;

// Loaded before sampling, since they do not depend on the token and the outbox is host memory, which is slow to read.
uint reports, window, last_position, stop_count;

// The first word of Philox4x32-10 (Salmon et al. 2011).
uint philox(uvec4 counter, uvec2 key) {
    for (uint round = 0u; round < 10u; ++round) {
        uint high0, low0, high1, low1;
        umulExtended(0xd2511f53u, counter.x, high0, low0);
        umulExtended(0xcd9e8d57u, counter.z, high1, low1);
        counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += uvec2(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter.x;
}

// Finds those of the WIDTH blocks from `first` on that can hold candidates.
void find_active_blocks(Entries candidates, uint first, uint only) {
    uint block = first + gl_LocalInvocationIndex;
    if (gl_LocalInvocationIndex == 0u) active_count = 0u;
    barrier();
    if (block < push.blocks) {
        bool matters = only == ALL_BLOCKS ? is_among(candidates, rank_at(block)) : block == only;
        if (matters) active_blocks[atomicAdd(active_count, 1u)] = block;
    }
    barrier();
}

// Stores the candidates of the active blocks in the workspace, in any order.
void collect_active(Entries candidates, Adjustment a) {
    uint tokens = active_count * BLOCK;
    for (uint first = gl_LocalInvocationIndex; first < tokens; first += LOADS_EACH * WIDTH) {
        uvec2 ranks[LOADS_EACH];
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; ++k) {
            uint token = min(first + k * WIDTH, tokens - 1u);
            uint id = active_blocks[token / BLOCK] * BLOCK + token % BLOCK;
            bool exists = first + k * WIDTH < tokens && id < push.vocabulary;
            uvec2 rank = rank_of(adjusted(a, min(id, push.vocabulary - 1u)), id);
            ranks[k] = exists && is_among(candidates, rank) ? rank : NO_RANK;
        }
        uint count = 0u, lowest = 0xffffffffu;
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; ++k) {
            if (ranks[k] == NO_RANK) continue;
            count++;
            lowest = min(lowest, ranks[k].x);
        }
        if (count == 0u) continue;
        uint to = ranks_at + candidates.first + atomicAdd(collected, count);
        atomicMin(lowest_key, lowest);
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; ++k) {
            if (ranks[k] != NO_RANK) push.ranks.at[to++] = ranks[k];
        }
    }
}

// Collects all candidates from all blocks, or from block `only`.
Entries collect(Entries candidates, Adjustment a, uint only) {
    if (gl_LocalInvocationIndex == 0u) {
        collected = 0u;
        lowest_key = 0xffffffffu;
    }
    for (uint first = 0u; first < push.blocks; first += WIDTH) {
        find_active_blocks(candidates, first, only);
        collect_active(candidates, a);
        memoryBarrierBuffer();
        barrier();
    }
    candidates.count = collected;
    candidates.lowest = lowest_key;
    return candidates;
}

// Returns the mass of all tokens.
uvec2 total_mass(Entries blocks) {
    fill_bins(blocks, true, uvec2(0u), uvec2(0u), 0u, 24u, 8u);
    uvec2 total = total_of_bins();
    barrier();
    return total;
}

// Draws a token for `position`.
uint draw(uint sequence, uint slot, uint position, uint lowest_of_blocks) {
    uint top_k = setting(slot, TOP_K);
    if (top_k >= push.vocabulary) top_k = 0u;
    float top_p = float_setting(slot, TOP_P), min_p = float_setting(slot, MIN_P);
    uvec2 seed = uvec2(setting(slot, SEED), setting(slot, SEED + 1u));
    uint number = philox(uvec4(position, 0u, setting(slot, SEQUENCE), 0u), seed) >> 8;

    Entries blocks = Entries(0u, push.blocks, true, lowest_of_blocks, NO_RANK, 0.0);
    Entries candidates = Entries(push.blocks, 0u, false, 0u, NO_RANK, 0.0);
    Goal drawn = Goal(true, BEYOND, number, uvec2(0u));
    Goal counted = Goal(false, AMOUNT, 0u, uvec2(top_k, 0u));
    uvec2 all = uvec2(0u), rest;
    uint only = ALL_BLOCKS;
    bool cuts = top_k > 0u || top_p < 1.0 || min_p > 0.0;
    // Bounds on all candidates from the blocks' best tokens.
    bool by_count = top_k > 0u && top_k <= push.blocks;
    if (by_count || !cuts) {
        uvec2 bound = select(blocks, !by_count, by_count ? counted : drawn, rest);
        if (by_count) {
            // At min_rank k tokens are as high as the k-th best of all blocks.
            candidates.min_rank = bound;
        } else {
            only = ~bound.y / BLOCK;
            drawn = Goal(true, AMOUNT, 0u, rest);
        }
    } else if (top_k == 0u) {
        candidates.min_weight = min_p;
        if (top_p < 1.0) {
            all = total_mass(blocks);
            // All tokens below this weight together have a probability below 1 - p, so they cannot be kept.
            float negligible = 0.99 * (1.0 - top_p) * weight_of_mass(all) / float(push.vocabulary);
            candidates.min_weight = max(min_p, negligible);
        }
    }
    candidates = collect(candidates, adjustment_of(sequence, slot), only);

    // Top-k, then top-p.
    for (uint cut = 0u; cut < 2u; ++cut) {
        if (cut == 0u ? top_k == 0u : top_p >= 1.0) continue;
        Goal probable = Goal(true, SHARE, uint(ceil(top_p * 16777216.0)), all);
        uvec2 bound = select(candidates, false, cut == 0u ? counted : probable, rest);
        candidates.min_rank = higher(candidates.min_rank, bound);
    }
    candidates.min_weight = max(candidates.min_weight, min_p);
    return ~select(candidates, true, drawn, rest).y;
}

// Samples the token for `position`; NOT_A_NUMBER if a logit is NaN.
uint pick(uint sequence, uint slot, uint position) {
    uvec2 best = NO_RANK;
    uint lowest = 0xffffffffu;
    for (uint block = gl_LocalInvocationIndex; block < push.blocks; block += WIDTH) {
        uvec2 rank = rank_at(block);
        best = higher(best, rank);
        lowest = min(lowest, rank.x);
    }
    best = highest_of_group(best);
    if (best.x == NAN_KEY) return NOT_A_NUMBER;
    if (float_setting(slot, TEMPERATURE) == 0.0) return ~best.y;
    largest_key = best.x;
    inverse_temperature = float_setting(slot, INVERSE_TEMPERATURE);
    lowest = ~highest_of_group(uvec2(~lowest, 0u)).x;
    return draw(sequence, slot, position, lowest);
}

void count_tokens(uint slot, uint token, uint position) {
    uint row = slot * push.vocabulary, history = slot * push.history_length;
    if (position < push.history_length) store_history(push.history, history + position, token);
    if (window == 0u) return;
    store_counts(push.counts, row + token, load_counts(push.counts, row + token) + 1u);
    if (position < window || position - window >= push.history_length) return;
    uint leaving = load_history(push.history, history + position - window);
    if (leaving >= push.vocabulary) return;
    uint count = load_counts(push.counts, row + leaving);
    if (count > 0u) store_counts(push.counts, row + leaving, count - 1u);
}

bool is_last(uint slot, uint token, uint position) {
    if (position >= min(last_position, push.history_length - 1u)) return true;
    for (uint i = 0u; i < min(stop_count, SETTINGS - FIRST_STOP); ++i) {
        if (setting(slot, FIRST_STOP + i) == token) return true;
    }
    return false;
}

void report(uint sequence, uint entry) {
    uint outbox = sequence * push.outbox_length;
    store_outbox(push.outbox, outbox + 1u + reports % (push.outbox_length - 1u), entry);
    store_outbox(push.outbox, outbox, reports + 1u);
    store_reported(push.reported, sequence, entry);
}

void main() UNIFORM_FLOW {
    uint sequence = gl_WorkGroupID.x, slot = slot_of(sequence);
    int position = load_positions(push.positions, sequence);
    reports = load_outbox(push.outbox, sequence * push.outbox_length);
    window = setting(slot, WINDOW);
    last_position = setting(slot, LAST_POSITION);
    stop_count = setting(slot, STOPS);
    ranks_at = sequence * (push.blocks + push.vocabulary);
    masses_at = sequence * push.blocks;
    uint next = uint(position) + 1u;
    uint token = FINISHED;
    if (position >= 0) token = pick(sequence, slot, next);
    if (gl_LocalInvocationIndex != 0u) return;
    report(sequence, token);
    if (position < 0) return;
    bool finished = token == NOT_A_NUMBER;
    if (!finished) {
        count_tokens(slot, token, next);
        finished = is_last(slot, token, next);
    }
    store_positions(push.positions, sequence, finished ? -1 : int(next));
    if (!finished) store_tokens(push.tokens, sequence, token);
}
