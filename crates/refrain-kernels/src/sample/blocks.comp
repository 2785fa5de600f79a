// Finds the best token of each block of neighbouring tokens and, if the draw is over all tokens, the sum of the block's
// weights relative to it.
shared float group_sums[WIDTH];

// Returns the workgroup's sum, in a fixed order; valid in the first invocation.
float sum_of_group(float value) {
    uint me = gl_LocalInvocationIndex;
    group_sums[me] = value;
    barrier();
    for (uint distance = WIDTH / 2u; distance > 0u; distance /= 2u) {
        if (me < distance) group_sums[me] += group_sums[me + distance];
        barrier();
    }
    return group_sums[0];
}

void main() UNIFORM_FLOW {
    uint block = gl_WorkGroupID.x, sequence = gl_WorkGroupID.y, me = gl_LocalInvocationIndex;
    if (load_positions(push.positions, sequence) < 0) return;
    uint slot = slot_of(sequence);
    Adjustment a = adjustment_of(sequence, slot);
    uint keys[TOKENS_EACH];
    uvec2 best = NO_RANK;
    [[unroll]] for (uint k = 0u; k < TOKENS_EACH; ++k) {
        uint id = block * BLOCK + k * WIDTH + me;
        // Ids beyond the last are clamped to it.
        uvec2 rank = rank_of(adjusted(a, min(id, push.vocabulary - 1u)), min(id, push.vocabulary - 1u));
        keys[k] = rank.x;
        best = higher(best, rank);
    }
    best = highest_of_group(best);
    if (me == 0u) push.ranks.at[sequence * (push.blocks + push.vocabulary) + block] = best;

    uint top_k = setting(slot, TOP_K);
    bool needs_mass = float_setting(slot, TEMPERATURE) != 0.0 && (top_k == 0u || top_k >= push.vocabulary);
    if (!needs_mass) return;
    float inverse_temperature = float_setting(slot, INVERSE_TEMPERATURE), sum = 0.0;
    [[unroll]] for (uint k = 0u; k < TOKENS_EACH; ++k) {
        bool exists = block * BLOCK + k * WIDTH + me < push.vocabulary;
        sum += exists ? weight_of(keys[k], best.x, inverse_temperature) : 0.0;
    }
    sum = sum_of_group(sum);
    if (me == 0u) store_masses(push.masses, sequence * push.blocks + block, sum);
}
