// Goes through the tokens of the sequence, with the head's state in registers.

void load_states() {
    load_conv_states();
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) load_run(r);
}

// Resets both states at the first token of a sequence.
void reset_states() {
    reset_conv_state();
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) reset_run(r);
}

// Updates S by the token that was convolved, and returns S q in `outputs`.
void update_state(float decay, float beta, out vec4 outputs[RUNS]) {
    float q[EACH], k[EACH];
    load_query_and_key(q, k);
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) outputs[r] = update_run(r, q, k, decay, beta);
}

#ifndef STATE_ONLY
// Whether this invocation stores component c of run r: each component has its own lane.
bool stores(uint r, uint c) { return in_value(value_of(r, c)) && lane() == (r * 4u + c) % LANES; }

// Loads the factors of the components that this invocation stores.
void load_gates(uint t, out vec4 gates[RUNS]) {
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            gates[r][c] = 0.0;
            if (stores(r, c)) gates[r][c] = load_gate(t, value_of(r, c));
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
    float scale = norm_scale(squares);
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint at = t * Y_STRIDE + head() * VALUE_DIM + value_of(r, c);
            if (stores(r, c)) store_y(pc.y, at, outputs[r][c] * scale * gates[r][c]);
        }
    }
}
#endif

// Whether a token belongs to the workgroup's sequence.
bool owns_token() {
    bool owns = false;
    for (uint t = 0u; t < TOKENS; ++t) owns = owns || is_own(load_sequences(pc.sequences, t));
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
        if (!is_own(owner)) continue;
        if (position < 0) {
#ifndef STATE_ONLY
            store_zeros(t);
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
    if (!changed && !KEEPS_STATES) return;
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) store_run(r);
    store_conv_state_once();
#endif
}
