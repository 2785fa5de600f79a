// A workgroup computes one value head of one sequence. Rows of the head's state S [E, D], four at a time, are spread over
// LANES invocations, EACH values to one. What follows this text goes through the sequence's tokens, GROUP at a time.
layout(constant_id = 5) const uint EACH = 4;
layout(constant_id = 6) const uint RUNS = 2; // runs of four rows of S per row of invocations
layout(constant_id = 7) const uint TAPS = 4;
layout(constant_id = 8) const uint KEY_DIM = 128;
layout(constant_id = 9) const uint VALUE_DIM = 128;
layout(constant_id = 10) const uint GROUP = 1; // tokens; at most ROWS

const uint THREADS = ROWS * LANES;
// A head's query, key and value after the convolution.
const uint OWN = 2u * KEY_DIM + VALUE_DIM;
const uint OWN_EACH = (OWN + THREADS - 1u) / THREADS;

shared float activated[GROUP * OWN];

bool arrives_last(uint ticket, uint workgroups);

// Runs of S in registers: run r is at EACH · (r % HELD).
#ifdef IN_PARTS
const uint HELD = 2u;
#else
const uint HELD = RUNS;
#endif
vec4 state[HELD * EACH];
float weights[OWN_EACH * TAPS];
// The newest last.
float taps[OWN_EACH * TAPS];

// Where sizes divide evenly, nothing is compared: each comparison costs a pair of scalar registers for subgroups of 64.
bool in_key(uint d) { return EACH * LANES == KEY_DIM || d < KEY_DIM; }
bool in_value(uint value) { return RUNS * 4u * ROWS == VALUE_DIM || value < VALUE_DIM; }

uint head() { return gl_WorkGroupID.x; }
uint key_head() { return gl_WorkGroupID.x / uint(RATIO); }
uint sequence() { return gl_WorkGroupID.y; }
uint channels() { return 2u * KEY_HEADS * KEY_DIM + gl_NumWorkGroups.x * VALUE_DIM; }

// The channel of value `own` of the head's query, key and value.
uint channel_of(uint own) {
    if (own < KEY_DIM) return key_head() * KEY_DIM + own;
    if (own < 2u * KEY_DIM) return (KEY_HEADS + key_head()) * KEY_DIM + own - KEY_DIM;
    return 2u * KEY_HEADS * KEY_DIM + head() * VALUE_DIM + own - 2u * KEY_DIM;
}

#ifndef NEXT_STATES
#define CONV_STATE_STRIDE ((TAPS - 1u) * channels())
#endif

uint conv_state_at(uint own, uint tap) {
    return sequence() * CONV_STATE_STRIDE + (tap - 1u) * channels() + channel_of(own);
}

// The head's value (row of S) of component c of run r.
uint value_of(uint r, uint c) { return (r * 4u + c) * ROWS + row_in_group(); }

uint state_at(uint value) {
    return ((sequence() * gl_NumWorkGroups.x + head()) * VALUE_DIM + value) * KEY_DIM;
}

#if defined(SCARCE_REGISTERS) || defined(IN_PARTS)
// Equals state_at, from an operand that the compiler cannot prove equal: otherwise it would keep all addresses in
// registers from the loads to the stores.
uint stored_at(uint value) {
    return ((sequence() * KEY_HEADS * uint(RATIO) + head()) * VALUE_DIM + value) * KEY_DIM;
}
#else
#define stored_at state_at
#endif

#ifndef RESULTS_ONLY
#ifdef NEXT_STATES
const bool KEEPS_STATES = true;
// The first tap of which the next conv state holds the input: 1, or 0 if it also holds the oldest.
const uint FIRST_TAP = uint(NEXT_FROM_TAP);
void write_conv_state(uint own, uint tap, float value) {
    uint row = sequence() * (TAPS - FIRST_TAP) + tap - FIRST_TAP;
    store_next_conv_state(pc.next_conv_state, row * channels() + channel_of(own), value);
}
void write_state(uint at, float value) { store_next_state(pc.next_state, at, value); }
#else
const bool KEEPS_STATES = false;
const uint FIRST_TAP = 1u;
void write_conv_state(uint own, uint tap, float value) {
    store_conv_state(pc.conv_state, conv_state_at(own, tap), value);
}
void write_state(uint at, float value) { store_state(pc.state, at, value); }
#endif
#endif

float silu(float x) { return x / (1.0 + exp(-x)); }

void load_conv_states() {
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = min(gl_LocalInvocationIndex + i * THREADS, OWN - 1u);
        [[unroll]] for (uint tap = 0u; tap < TAPS; ++tap) {
            weights[i * TAPS + tap] = load_weights(pc.weights, channel_of(own) * TAPS + tap);
            taps[i * TAPS + tap] = tap > 0u ? load_conv_state(pc.conv_state, conv_state_at(own, tap)) : 0.0;
        }
    }
}

// Resets the conv state at the first token of a sequence.
void reset_conv_state() {
    [[unroll]] for (uint i = 0u; i < OWN_EACH * TAPS; ++i) taps[i] = 0.0;
}

// Loads run r of S.
void load_run(uint r) {
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint value = value_of(r, c);
            bool inside = in_key(d) && in_value(value);
            state[r % HELD * EACH + i][c] = inside ? load_state(pc.state, state_at(value) + d) : 0.0;
        }
    }
}

void reset_run(uint r) {
    [[unroll]] for (uint i = 0u; i < EACH; ++i) state[r % HELD * EACH + i] = vec4(0.0);
}

#ifndef RESULTS_ONLY
void store_run(uint r) {
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint value = value_of(r, c);
            if (in_key(d) && in_value(value)) write_state(stored_at(value) + d, state[r % HELD * EACH + i][c]);
        }
    }
}
#endif

// Inputs of the convolution, of each token of the group.
float newest[GROUP * OWN_EACH];

// Loads those of token t, number j of the group.
void load_newest(uint t, uint j) {
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = min(gl_LocalInvocationIndex + i * THREADS, OWN - 1u);
        newest[j * OWN_EACH + i] = load_x(pc.x, t * X_STRIDE + channel_of(own));
    }
}

// Convolves the tokens of the group that `mine` has bits of, and stores each one's query, key and value of the head, after
// SiLU, in shared memory.
void convolve(uint mine) {
    [[unroll]] for (uint j = 0u; j < GROUP; ++j) {
        if ((mine >> j & 1u) == 0u) continue;
        [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
            uint own = gl_LocalInvocationIndex + i * THREADS;
            float sum = 0.0;
            [[unroll]] for (uint tap = 0u; tap < TAPS; ++tap) {
                float x = tap + 1u < TAPS ? taps[i * TAPS + min(tap + 1u, TAPS - 1u)] : newest[j * OWN_EACH + i];
                taps[i * TAPS + tap] = x;
                sum += weights[i * TAPS + tap] * x;
            }
            if (own < OWN) activated[j * OWN + own] = silu(sum);
        }
    }
    barrier();
}

// Sums over the lanes of a row. Where lanes exchange values, a lane keeps only some of the components after each exchange.
// subgroupAdd takes five exchanges for each component, which a compute unit full of invocations waits for.
#ifdef EXCHANGES_LANES
vec2 sum_both(vec2 value) {
    bool is_odd = (lane() & 1u) != 0u;
    float own = (is_odd ? value.y : value.x) + subgroupShuffleXor(is_odd ? value.x : value.y, 1u);
    [[unroll]] for (uint apart = 2u; apart < LANES; apart *= 2u) own += subgroupShuffleXor(own, apart);
    float other = subgroupShuffleXor(own, 1u);
    return is_odd ? vec2(other, own) : vec2(own, other);
}

// Returns the sum of component lane() % 4.
float sum_apart(vec4 value) {
    bool is_odd = (lane() & 1u) != 0u, is_late = (lane() & 2u) != 0u;
    vec2 pair = (is_odd ? value.yw : value.xz) + subgroupShuffleXor(is_odd ? value.xz : value.yw, 1u);
    float own = (is_late ? pair.y : pair.x) + subgroupShuffleXor(is_late ? pair.x : pair.y, 2u);
    [[unroll]] for (uint apart = 4u; apart < LANES; apart *= 2u) own += subgroupShuffleXor(own, apart);
    return own;
}

vec4 sum_all(vec4 value) {
    float own = sum_apart(value);
    uint first = gl_SubgroupInvocationID & ~3u;
    vec4 sums;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) sums[c] = subgroupShuffle(own, first + c);
    return sums;
}
#else
vec2 sum_both(vec2 value) { return sum_lanes(vec4(value, 0.0, 0.0)).xy; }

vec4 sum_all(vec4 value) { return sum_lanes(value); }

float sum_apart(vec4 value) { return sum_lanes(value)[lane() % 4u]; }
#endif

// Loads this invocation's values of the query and key of the group's token j, normalised and scaled.
void load_query_and_key(uint j, out float q[EACH], out float k[EACH]) {
    vec2 squares = vec2(0.0);
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        q[i] = in_key(d) ? activated[j * OWN + d] : 0.0;
        k[i] = in_key(d) ? activated[j * OWN + KEY_DIM + d] : 0.0;
        squares += vec2(q[i] * q[i], k[i] * k[i]);
    }
    squares = sum_both(squares);
    vec2 scales = uintBitsToFloat(uvec2(Q_SCALE, K_SCALE)) / sqrt(squares / float(KEY_DIM) + uintBitsToFloat(EPS));
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        q[i] *= scales.x;
        k[i] *= scales.y;
    }
}

// Updates run r of S by the group's token j: S ← decay · S, then S ← S + beta · (v − S k) kᵀ. Returns S q in
// row lane() % 4 of the run.
float update_run(uint r, uint j, float q[EACH], float k[EACH], float decay, float beta) {
    vec4 state_k = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        state[r % HELD * EACH + i] *= decay;
        state_k += state[r % HELD * EACH + i] * k[i];
    }
    state_k = sum_all(state_k);
    vec4 values;
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        uint value = value_of(r, c);
        values[c] = in_value(value) ? activated[j * OWN + 2u * KEY_DIM + value] : 0.0;
    }
    vec4 delta = beta * (values - state_k);
    vec4 output_ = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        state[r % HELD * EACH + i] += delta * k[i];
        output_ += state[r % HELD * EACH + i] * q[i];
    }
    return sum_apart(output_);
}

#ifndef RESULTS_ONLY
void store_conv_states(uint from, uint to) {
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = gl_LocalInvocationIndex + i * THREADS;
        if (own < from || own >= to) continue;
        [[unroll]] for (uint tap = FIRST_TAP; tap < TAPS; ++tap) write_conv_state(own, tap, taps[i * TAPS + tap]);
    }
}

// Stores the conv state. Value heads that share a key head share a part of it. One workgroup alone writes that part: the
// last, when all have read it, or any if the state stays as it is.
void store_conv_state_once() {
    store_conv_states(2u * KEY_DIM, OWN);
#if RATIO > 1 && defined(NEXT_STATES)
    if (head() % uint(RATIO) != 0u) return;
#elif RATIO > 1
    if (!arrives_last(sequence() * KEY_HEADS + key_head(), uint(RATIO))) return;
#endif
    store_conv_states(0u, 2u * KEY_DIM);
}
#endif

#ifndef STATE_ONLY
// Factor of a normalised component of token t: silu(z) times the norm's weight.
float load_gate(uint t, uint value) {
    float z = load_z(pc.z, t * Z_STRIDE + head() * VALUE_DIM + value);
#ifdef NORM_WEIGHT
    return silu(z) * load_norm_weight(pc.norm_weight, value);
#else
    return silu(z);
#endif
}

// A token without a position has zeros.
void store_zeros(uint t) {
    for (uint value = gl_LocalInvocationIndex; value < VALUE_DIM; value += THREADS) {
        store_y(pc.y, t * Y_STRIDE + head() * VALUE_DIM + value, 0.0);
    }
}
#endif

// Whether a token's sequence is that of the workgroup.
bool is_own(uint owner) { return min(owner, gl_NumWorkGroups.y - 1u) == sequence(); }
