// Goes through the tokens of the sequence, with the head's state in registers. What does not depend on the state is
// computed for all tokens of a group at once: between two tokens nothing is loaded, and no barrier is passed.

// Values of a head that an invocation finishes.
const uint FINISHED = (VALUE_DIM + LANES - 1u) / LANES;

shared float decays[GROUP], betas[GROUP];
#ifndef STATE_ONLY
// S q of each token.
shared float outputs[GROUP * VALUE_DIM];
float gates[FINISHED];
#endif

void load_states() {
    load_conv_states();
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) load_run(r);
}

// Resets both states at the first token of a sequence.
void reset_states() {
    reset_conv_state();
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) reset_run(r);
}

// Updates S by token j of the group, and keeps S q.
void update_state(uint j) {
    float q[EACH], k[EACH];
    load_query_and_key(j, q, k);
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        float own = update_run(r, j, q, k, decays[j], betas[j]);
#ifndef STATE_ONLY
        uint value = value_of(r, lane() % 4u);
        if (lane() < 4u && in_value(value)) outputs[j * VALUE_DIM + value] = own;
#endif
    }
}

#ifndef STATE_ONLY
// A row of invocations finishes a token.
uint finished_token() { return min(row_in_group(), GROUP - 1u); }

uint finished_value(uint i) { return min(lane() + i * LANES, VALUE_DIM - 1u); }

void load_gates(uint base) {
    uint t = min(base + finished_token(), TOKENS - 1u);
    [[unroll]] for (uint i = 0u; i < FINISHED; ++i) gates[i] = load_gate(t, finished_value(i));
}

// Normalises, gates and stores the outputs of the tokens.
void finish(uint base, uint mine) {
    barrier();
    uint j = finished_token();
    float values[FINISHED];
    float squares = 0.0;
    [[unroll]] for (uint i = 0u; i < FINISHED; ++i) {
        values[i] = outputs[j * VALUE_DIM + finished_value(i)];
        if (lane() + i * LANES < VALUE_DIM) squares += values[i] * values[i];
    }
    float mean = sum_both(vec2(squares, 0.0)).x / float(VALUE_DIM);
    float scale = 1.0 / sqrt(mean + uintBitsToFloat(NORM_EPS));
    if (row_in_group() >= GROUP || (mine >> j & 1u) == 0u) return;
    [[unroll]] for (uint i = 0u; i < FINISHED; ++i) {
        if (lane() + i * LANES >= VALUE_DIM) continue;
        uint at = (base + j) * Y_STRIDE + head() * VALUE_DIM + finished_value(i);
        store_y(pc.y, at, values[i] * scale * gates[i]);
    }
}
#endif

// Whether a token belongs to the workgroup's sequence.
bool owns_token() {
    bool owns = false;
    for (uint t = 0u; t < TOKENS; ++t) owns = owns || is_own(load_sequences(pc.sequences, t));
    return owns;
}

// Loads what tokens need that does not depend on the state. Returns the number of tokens of the group from `base` on,
// which bits of `mine` and `idle` stand for: those of the sequence with and without a position. Only the first may be
// the first of its sequence.
uint load_group(uint base, out uint mine, out uint idle, out bool is_first) {
    uint owners[GROUP];
    int positions[GROUP];
    [[unroll]] for (uint j = 0u; j < GROUP; ++j) {
        uint t = min(base + j, TOKENS - 1u);
        owners[j] = load_sequences(pc.sequences, t);
        positions[j] = load_positions(pc.positions, t);
        load_newest(t, j);
    }
    uint own = min(gl_LocalInvocationIndex, GROUP - 1u);
    uint t = min(base + own, TOKENS - 1u);
    float decay = load_decay(pc.decay, t * DECAY_STRIDE + head());
    float beta = load_beta(pc.beta, t * BETA_STRIDE + head());
#ifndef STATE_ONLY
    load_gates(base);
#endif
    // All are done with the tokens before.
    barrier();
    if (gl_LocalInvocationIndex < GROUP) {
        decays[own] = decay;
        betas[own] = beta;
    }
    uint count = min(GROUP, TOKENS - base);
    mine = idle = 0u;
    is_first = false;
    [[unroll]] for (uint j = 0u; j < GROUP; ++j) {
        bool is_there = j < count && is_own(owners[j]);
        if (is_there && positions[j] == 0 && j > 0u) {
            count = j;
        } else if (is_there && positions[j] < 0) {
            idle |= 1u << j;
        } else if (is_there) {
            mine |= 1u << j;
            is_first = is_first || positions[j] == 0;
        }
    }
    return count;
}

void main() UNIFORM_FLOW {
#ifndef NEXT_STATES
    // A server has states for more sequences than a step has tokens: those of the others are not read.
    if (gl_NumWorkGroups.y > 1u && !owns_token()) return;
#endif
    load_states();
    bool changed = false;
    for (uint base = 0u; base < TOKENS;) {
        uint mine, idle;
        bool is_first;
        uint count = load_group(base, mine, idle, is_first);
#ifndef STATE_ONLY
        for (uint j = 0u; j < GROUP; ++j) {
            if ((idle >> j & 1u) != 0u) store_zeros(base + j);
        }
#endif
        if (mine != 0u) {
            changed = true;
            if (is_first) reset_states();
            convolve(mine);
            for (uint j = 0u; j < count; ++j) {
                if ((mine >> j & 1u) != 0u) update_state(j);
            }
#ifndef STATE_ONLY
            finish(base, mine);
#endif
        }
        base += count;
    }
#ifndef RESULTS_ONLY
    if (!changed && !KEEPS_STATES) return;
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) store_run(r);
    store_conv_state_once();
#endif
}
