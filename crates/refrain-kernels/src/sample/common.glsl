// Shared by both sampling kernels: operands, a sequence's settings, and its adjusted logits.
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint WIDTH = 128; // invocations per workgroup
layout(constant_id = 4) const uint TOKENS_EACH = 4;
layout(constant_id = 5) const uint BLOCK_WIDTH = 128;
// Neighbouring tokens of which one workgroup of the first kernel finds the best.
const uint BLOCK = TOKENS_EACH * BLOCK_WIDTH;

layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer ranks_ref { uvec2 at[]; };

layout(push_constant, scalar) uniform Push {
    logits_ref logits;
    settings_ref settings;
    tokens_ref tokens;
    positions_ref positions;
    history_ref history;
    counts_ref counts;
    outbox_ref outbox;
    slots_ref slots;
    bias_ref bias;
    reported_ref reported;
    ranks_ref ranks;   // [sequences, blocks + vocabulary]: the best of each block, then candidates
    masses_ref masses; // [sequences, blocks]: sums of weights relative to the block's best
    uint vocabulary;
    uint blocks;
    uint logits_stride;
    uint history_length;
    uint outbox_length;
    uint biased; // whether the operand `bias` holds values
    uint slot_count;
} push;

const uint SETTINGS = 32u;
const uint TEMPERATURE = 0u, INVERSE_TEMPERATURE = 1u, TOP_K = 2u, TOP_P = 3u, MIN_P = 4u, REPEAT = 5u,
    INVERSE_REPEAT = 6u, PRESENCE = 7u, FREQUENCY = 8u, WINDOW = 9u, SEED = 10u, SEQUENCE = 12u,
    LAST_POSITION = 13u, BIASED = 14u, STOPS = 15u, FIRST_STOP = 16u;

// Returns the row of settings, history, counts and bias of a sequence.
uint slot_of(uint sequence) { return min(load_slots(push.slots, sequence), push.slot_count - 1u); }

uint setting(uint slot, uint word) { return load_settings(push.settings, SETTINGS * slot + word); }
float float_setting(uint slot, uint word) { return uintBitsToFloat(setting(slot, word)); }

// A bit of a count: the token is in the prompt, which only the repeat penalty counts.
const uint IN_PROMPT = 0x80000000u;

// Bias and penalties of a sequence's logits.
struct Adjustment {
    uint logits_at, row_at;
    bool biased, penalised;
    float repeat, inverse_repeat, presence, frequency;
};

Adjustment adjustment_of(uint sequence, uint slot) {
    Adjustment a;
    a.logits_at = sequence * push.logits_stride;
    a.row_at = slot * push.vocabulary;
    a.biased = push.biased != 0u && setting(slot, BIASED) != 0u;
    a.repeat = float_setting(slot, REPEAT);
    a.inverse_repeat = float_setting(slot, INVERSE_REPEAT);
    a.presence = float_setting(slot, PRESENCE);
    a.frequency = float_setting(slot, FREQUENCY);
    bool changes = a.repeat != 1.0 || a.presence != 0.0 || a.frequency != 0.0;
    a.penalised = changes && setting(slot, WINDOW) > 0u;
    return a;
}

float adjusted(Adjustment a, uint id) {
    precise float logit = load_logits(push.logits, a.logits_at + id);
    if (a.biased) logit = logit + load_bias(push.bias, a.row_at + id);
    if (!a.penalised) return logit;
    uint count = load_counts(push.counts, a.row_at + id);
    if (count == 0u) return logit;
    precise float scaled = logit * (logit > 0.0 ? a.inverse_repeat : a.repeat);
    count &= ~IN_PROMPT;
    if (count == 0u) return scaled;
    precise float penalty = float(count) * a.frequency;
    precise float sum = penalty + a.presence;
    precise float penalised = scaled - sum;
    return penalised;
}

// The most probable token has the largest rank: the logit's key, then the lowest id.
const uvec2 NO_RANK = uvec2(0u);
const uint NAN_KEY = 0xffffffffu;
uvec2 rank_of(float logit, uint id) { return uvec2(order_key(logit), ~id); }
bool is_above(uvec2 a, uvec2 b) { return a.x > b.x || (a.x == b.x && a.y > b.y); }
uvec2 higher(uvec2 a, uvec2 b) { return is_above(a, b) ? a : b; }

// Returns a token's probability relative to that of the token with key `largest`. Equal logits have weight 1 even if
// both are infinite.
float weight_of(uint key, uint largest, float inverse_temperature) {
    if (key == largest) return 1.0;
    float below = max(float_of_key(key) - float_of_key(largest), -3.0e38);
    return exp_of(below * inverse_temperature);
}

shared uvec2 group_ranks[WIDTH];

// Returns the workgroup's highest rank.
uvec2 highest_of_group(uvec2 rank) {
    uint count = WIDTH, me = gl_LocalInvocationIndex;
#ifdef SUBGROUP_ARITHMETIC
    uint key = subgroupMax(rank.x);
    uint inverted = subgroupMax(rank.x == key ? rank.y : 0u);
    count = gl_NumSubgroups;
    if (subgroupElect()) group_ranks[gl_SubgroupID] = uvec2(key, inverted);
    barrier();
    uvec2 best = group_ranks[0];
    for (uint i = 1u; i < count; ++i) best = higher(best, group_ranks[i]);
#else
    group_ranks[me] = rank;
    barrier();
    for (uint distance = WIDTH / 2u; distance > 0u; distance /= 2u) {
        if (me < distance) group_ranks[me] = higher(group_ranks[me], group_ranks[me + distance]);
        barrier();
    }
    uvec2 best = group_ranks[0];
#endif
    barrier();
    return best;
}
