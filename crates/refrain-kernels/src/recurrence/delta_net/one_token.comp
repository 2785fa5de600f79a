// Each sequence has at most one token. Runs of the state pass through the registers one after another, each loaded before
// the one ahead of it is computed: a workgroup needs few registers, so a compute unit has several sequences in flight.

// Components that an invocation stores: each has its own lane.
const uint STORED = (RUNS * 4u + LANES - 1u) / LANES;

// The sequence's token, or TOKENS.
shared uint own_token;
shared bool has_idle_tokens;
shared float row_squares[ROWS];

uint stored_component(uint i) { return lane() + i * LANES; }

bool stores(uint i) {
    uint component = stored_component(i);
    return component < RUNS * 4u && in_value(value_of(component / 4u, component % 4u));
}

uint stored_value(uint i) { return value_of(stored_component(i) / 4u, stored_component(i) % 4u); }

// Finds the sequence's token. Rows of a step that nobody uses have tokens without a position.
void find_token() {
    if (gl_LocalInvocationIndex == 0u) {
        own_token = TOKENS;
        has_idle_tokens = false;
    }
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < TOKENS; t += THREADS) {
        int position = load_positions(pc.positions, t);
        if (!is_own(load_sequences(pc.sequences, t))) continue;
        if (position < 0) {
            has_idle_tokens = true;
        } else {
            own_token = t;
        }
    }
    barrier();
}

// Factor of the output norm. `squares` is the sum over the values that this lane is the first to have.
float norm_scale(float squares) {
    squares = sum_both(vec2(squares, 0.0)).x;
    if (lane() == 0u) row_squares[row_in_group()] = squares;
    barrier();
    float total = 0.0;
    for (uint row = 0u; row < ROWS; ++row) total += row_squares[row];
    return 1.0 / sqrt(total / float(VALUE_DIM) + uintBitsToFloat(NORM_EPS));
}

void main() UNIFORM_FLOW {
    find_token();
    if (has_idle_tokens) {
        for (uint t = 0u; t < TOKENS; ++t) {
            bool own = is_own(load_sequences(pc.sequences, t));
            if (own && load_positions(pc.positions, t) < 0) store_zeros(t);
        }
    }
    uint t = own_token;
    if (t == TOKENS) return;
    load_run(0u);
    load_conv_states();
    float decay = load_decay(pc.decay, t * DECAY_STRIDE + head());
    float beta = load_beta(pc.beta, t * BETA_STRIDE + head());
    float gates[STORED], outputs[STORED];
    load_newest(t, 0u);
    [[unroll]] for (uint i = 0u; i < STORED; ++i) gates[i] = stores(i) ? load_gate(t, stored_value(i)) : 0.0;
    bool is_first = load_positions(pc.positions, t) == 0;
    if (is_first) reset_conv_state();
    convolve(1u);
    float q[EACH], k[EACH];
    load_query_and_key(0u, q, k);
    float squares = 0.0;
    [[unroll]] for (uint r = 0u; r < RUNS; ++r) {
        if (r + 1u < RUNS) load_run(r + 1u);
        if (is_first) reset_run(r);
        float own = update_run(r, 0u, q, k, decay, beta);
        store_run(r);
        if (lane() < 4u && in_value(value_of(r, lane()))) squares += own * own;
        [[unroll]] for (uint i = 0u; i < STORED; ++i) {
            if (stored_component(i) / 4u == r) outputs[i] = own;
        }
    }
    float scale = norm_scale(squares);
    [[unroll]] for (uint i = 0u; i < STORED; ++i) {
        uint at = t * Y_STRIDE + head() * VALUE_DIM + stored_value(i);
        if (stores(i)) store_y(pc.y, at, outputs[i] * scale * gates[i]);
    }
    store_conv_state_once();
}
