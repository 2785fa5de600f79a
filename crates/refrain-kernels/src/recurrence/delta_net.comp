// A workgroup goes through the tokens of one sequence for one value head. Rows of the head's state S [E, D], four at a
// time, are spread over LANES invocations, EACH values to one.
layout(constant_id = 5) const uint EACH = 4;
layout(constant_id = 6) const uint RUNS = 2; // runs of four rows of S per row of invocations
layout(constant_id = 7) const uint TAPS = 4;
layout(constant_id = 8) const uint KEY_DIM = 128;
layout(constant_id = 9) const uint VALUE_DIM = 128;

const uint THREADS = ROWS * LANES;
// A head's query, key and value after the convolution.
const uint OWN = 2u * KEY_DIM + VALUE_DIM;
const uint OWN_EACH = (OWN + THREADS - 1u) / THREADS;

shared float activated[OWN];
shared float row_squares[ROWS];

bool arrives_last(uint ticket, uint workgroups);

vec4 state[RUNS * EACH];
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

#ifdef SCARCE_REGISTERS
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

void load_states() {
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = min(gl_LocalInvocationIndex + i * THREADS, OWN - 1u);
        [[unroll]] for (uint tap = 0u; tap < TAPS; ++tap) {
            weights[i * TAPS + tap] = load_weights(pc.weights, channel_of(own) * TAPS + tap);
            taps[i * TAPS + tap] = tap > 0u ? load_conv_state(pc.conv_state, conv_state_at(own, tap)) : 0.0;
        }
    }
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint i = 0u; i < EACH; ++i) {
            uint d = lane() + i * LANES;
            [[unroll]] for (uint c = 0u; c < 4u; ++c) {
                uint value = value_of(r, c);
                bool inside = in_key(d) && in_value(value);
                state[r * EACH + i][c] = inside ? load_state(pc.state, state_at(value) + d) : 0.0;
            }
        }
    }
}

// Resets both states at the first token of a sequence.
void reset_states() {
    [[unroll]] for (uint i = 0u; i < RUNS * EACH; ++i) state[i] = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < OWN_EACH * TAPS; ++i) taps[i] = 0.0;
}

// Convolves token t and stores the head's query, key and value, after SiLU, in shared memory.
void convolve(uint t) {
    float sums[OWN_EACH];
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = min(gl_LocalInvocationIndex + i * THREADS, OWN - 1u);
        sums[i] = 0.0;
        [[unroll]] for (uint tap = 1u; tap < TAPS; ++tap) {
            float earlier = taps[i * TAPS + tap];
            taps[i * TAPS + tap - 1u] = earlier;
            sums[i] += weights[i * TAPS + tap - 1u] * earlier;
        }
        float newest = load_x(pc.x, t * X_STRIDE + channel_of(own));
        taps[(i + 1u) * TAPS - 1u] = newest;
        sums[i] += weights[(i + 1u) * TAPS - 1u] * newest;
    }
    barrier();
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = gl_LocalInvocationIndex + i * THREADS;
        if (own < OWN) activated[own] = silu(sums[i]);
    }
    barrier();
}

// Updates S by a token: S ← decay · S, then S ← S + beta · (v − S k) kᵀ. Returns S q in `outputs`.
void update_state(float decay, float beta, out vec4 outputs[RUNS]) {
    float q[EACH], k[EACH];
    vec4 squares = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        q[i] = in_key(d) ? activated[d] : 0.0;
        k[i] = in_key(d) ? activated[KEY_DIM + d] : 0.0;
        squares.xy += vec2(q[i] * q[i], k[i] * k[i]);
    }
    squares = sum_lanes(squares);
    vec2 scales = uintBitsToFloat(uvec2(Q_SCALE, K_SCALE)) / sqrt(squares.xy / float(KEY_DIM) + uintBitsToFloat(EPS));
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        q[i] *= scales.x;
        k[i] *= scales.y;
    }
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        vec4 state_k = vec4(0.0);
        [[unroll]] for (uint i = 0u; i < EACH; ++i) {
            state[r * EACH + i] *= decay;
            state_k += state[r * EACH + i] * k[i];
        }
        state_k = sum_lanes(state_k);
        vec4 values;
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint value = value_of(r, c);
            values[c] = in_value(value) ? activated[2u * KEY_DIM + value] : 0.0;
        }
        vec4 delta = beta * (values - state_k);
        vec4 output_ = vec4(0.0);
        [[unroll]] for (uint i = 0u; i < EACH; ++i) {
            state[r * EACH + i] += delta * k[i];
            output_ += state[r * EACH + i] * q[i];
        }
        outputs[r] = sum_lanes(output_);
    }
}

// Whether this invocation stores component c of run r: each component has its own lane.
bool stores(uint r, uint c) { return in_value(value_of(r, c)) && lane() == (r * 4u + c) % LANES; }

#ifndef STATE_ONLY
// Factors of the normalised components that this invocation stores: silu(z) times the norm's weight.
void load_gates(uint t, out vec4 gates[RUNS]) {
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            gates[r][c] = 0.0;
            if (!stores(r, c)) continue;
            uint value = value_of(r, c);
            float z = load_z(pc.z, t * Z_STRIDE + head() * VALUE_DIM + value);
#ifdef NORM_WEIGHT
            gates[r][c] = silu(z) * load_norm_weight(pc.norm_weight, value);
#else
            gates[r][c] = silu(z);
#endif
        }
    }
}

// Normalises, gates and stores the outputs of token t.
void finish(uint t, vec4 outputs[RUNS], vec4 gates[RUNS]) {
    float squares = 0.0;
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            if (in_value(value_of(r, c))) squares += outputs[r][c] * outputs[r][c];
        }
    }
    if (lane() == 0u) row_squares[row_in_group()] = squares;
    barrier();
    float total = 0.0;
    for (uint row = 0u; row < ROWS; ++row) total += row_squares[row];
    float scale = 1.0 / sqrt(total / float(VALUE_DIM) + uintBitsToFloat(NORM_EPS));
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint at = t * Y_STRIDE + head() * VALUE_DIM + value_of(r, c);
            if (stores(r, c)) store_y(pc.y, at, outputs[r][c] * scale * gates[r][c]);
        }
    }
}

#endif

#ifndef RESULTS_ONLY
void store_conv_states(uint from, uint to) {
    [[unroll]] for (uint i = 0u; i < OWN_EACH; ++i) {
        uint own = gl_LocalInvocationIndex + i * THREADS;
        if (own < from || own >= to) continue;
        [[unroll]] for (uint tap = FIRST_TAP; tap < TAPS; ++tap) write_conv_state(own, tap, taps[i * TAPS + tap]);
    }
}

void store_states() {
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint i = 0u; i < EACH; ++i) {
            uint d = lane() + i * LANES;
            [[unroll]] for (uint c = 0u; c < 4u; ++c) {
                uint value = value_of(r, c);
                if (in_key(d) && in_value(value)) write_state(stored_at(value) + d, state[r * EACH + i][c]);
            }
        }
    }
    store_conv_states(2u * KEY_DIM, OWN);
    // Value heads that share a key head also share its conv state. One workgroup alone writes it: the last, when all
    // have read it, or any if the state stays as it is.
#if RATIO > 1 && defined(NEXT_STATES)
    if (head() % uint(RATIO) != 0u) return;
#elif RATIO > 1
    if (!arrives_last(sequence() * KEY_HEADS + key_head(), uint(RATIO))) return;
#endif
    store_conv_states(0u, 2u * KEY_DIM);
}
#endif

// Whether a token belongs to the workgroup's sequence.
bool owns_token() {
    bool owns = false;
    for (uint t = 0u; t < TOKENS; ++t) {
        owns = owns || min(load_sequences(pc.sequences, t), gl_NumWorkGroups.y - 1u) == sequence();
    }
    return owns;
}

void main() UNIFORM_FLOW {
#ifndef NEXT_STATES
    // A server has states for more sequences than a step has tokens: those of the others are not read.
    if (gl_NumWorkGroups.y > 1u && !owns_token()) return;
#endif
    load_states();
    bool changed = false;
    for (uint t = 0u; t < TOKENS; ++t) {
        uint owner = load_sequences(pc.sequences, t);
        int position = load_positions(pc.positions, t);
        if (min(owner, gl_NumWorkGroups.y - 1u) != sequence()) continue;
        if (position < 0) {
#ifndef STATE_ONLY
            for (uint value = gl_LocalInvocationIndex; value < VALUE_DIM; value += THREADS) {
                store_y(pc.y, t * Y_STRIDE + head() * VALUE_DIM + value, 0.0);
            }
#endif
            continue;
        }
        if (position == 0) reset_states();
        changed = true;
        float decay = load_decay(pc.decay, t * DECAY_STRIDE + head());
        float beta = load_beta(pc.beta, t * BETA_STRIDE + head());
        vec4 gates[RUNS], outputs[RUNS];
#ifdef STATE_ONLY
        convolve(t);
        update_state(decay, beta, outputs);
#elif defined(SCARCE_REGISTERS)
        convolve(t);
        update_state(decay, beta, outputs);
        load_gates(t, gates);
#else
        // The gates' loads are issued first, since they depend on nothing before them.
        load_gates(t, gates);
        convolve(t);
        update_state(decay, beta, outputs);
#endif
#ifndef STATE_ONLY
        finish(t, outputs, gates);
#endif
    }
#ifndef RESULTS_ONLY
    if (changed || KEEPS_STATES) store_states();
#endif
}
