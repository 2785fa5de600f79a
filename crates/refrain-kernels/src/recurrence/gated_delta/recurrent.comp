// A row of invocations goes through the tokens of one sequence for VALUES values of one head. The values' rows of the
// head's state S are spread over LANES invocations, EACH values of a row to one, in fours. Tokens depend on each other,
// so latency per token is kept short: the workgroup loads TILE tokens at once and prefetches the next ones, and all
// reductions of a token use the state before it: (S + δ kᵀ) q = S q + δ (k · q). Every operation that a compiler might
// round in two ways is explicit: results are bit-identical for all VALUES and TILE.
layout(constant_id = 5) const uint EACH = 4;
layout(constant_id = 6) const uint VALUES = 1;
layout(constant_id = 7) const uint TILE = 8;

layout(push_constant, scalar) uniform Push {
    q_ref q;
    k_ref k;
    v_ref v;
    decay_ref decay;
    beta_ref beta;
    positions_ref positions;
    sequences_ref sequences;
    state_ref state;
#ifndef STATE_ONLY
    y_ref y;
#endif
    uint tokens;
    uint ratio; // value heads per key head
    uint key_dim, value_dim;
    uvec2 q_strides, k_strides, v_strides; // between tokens, between heads
#ifndef STATE_ONLY
    uvec2 y_strides;
#endif
} pc;

const uint THREADS = LANES * ROWS;
const uint FOURS = EACH / 4u;
const uint KEYS = LANES * EACH;
const uint GROUP_VALUES = ROWS * VALUES;
// Loads of an invocation per tile.
const uint KEY_PARTS = (TILE * KEYS / 4u + THREADS - 1u) / THREADS;
const uint VALUE_PARTS = (TILE * GROUP_VALUES + THREADS - 1u) / THREADS;
const uint GATE_PARTS = (TILE + THREADS - 1u) / THREADS;
// Stands for the position of a token of another sequence.
const int OTHER_SEQUENCE = -2;

shared vec4 q_tile[TILE * KEYS / 4u];
shared vec4 k_tile[TILE * KEYS / 4u];
shared float v_tile[TILE * GROUP_VALUES];
shared float decay_tile[TILE];
shared float beta_tile[TILE];
shared int position_tile[TILE];
// k · q of each token.
shared float kq_tile[TILE];
// The sequence's first token in this call, and the one after its last.
shared uint own_begin, own_end;

vec4 state[VALUES][FOURS];
vec4 q_next[KEY_PARTS], k_next[KEY_PARTS];
float v_next[VALUE_PARTS];
float decay_next[GATE_PARTS], beta_next[GATE_PARTS];
int position_next[GATE_PARTS];

uint sequence() { return gl_WorkGroupID.z; }
uint head() { return gl_WorkGroupID.y; }
bool is_own(uint t) { return min(load_sequences(pc.sequences, t), gl_NumWorkGroups.z - 1u) == sequence(); }

// Index in the head of this workgroup's value `i`.
uint value_of_group(uint i) { return gl_WorkGroupID.x * GROUP_VALUES + i; }
// Index in the head of this row's value `i`.
uint value(uint i) { return value_of_group(row_in_group() * VALUES + i); }

uint state_at(uint i) {
    uint clamped = min(value(i), pc.value_dim - 1u);
    return ((sequence() * gl_NumWorkGroups.y + head()) * pc.value_dim + clamped) * pc.key_dim;
}

// Index in a key of a lane's value `j`, and index of its four `j` in a tile of tokens. Neighbouring lanes have
// neighbouring fours.
uint key_of(uint j) { return (j / 4u * LANES + lane()) * 4u + j % 4u; }
uint key_at(uint token, uint j) { return token * (KEYS / 4u) + j * LANES + lane(); }

float sum_of(vec4 x) { return (x.x + x.y) + (x.z + x.w); }

void reset_state() {
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
        [[unroll]] for (uint j = 0u; j < FOURS; ++j) state[i][j] = vec4(0.0);
    }
}

void find_own_tokens() {
    if (gl_LocalInvocationIndex == 0u) {
        own_begin = pc.tokens;
        own_end = 0u;
    }
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < pc.tokens; t += THREADS) {
        if (!is_own(t)) continue;
        atomicMin(own_begin, t);
        atomicMax(own_end, t + 1u);
    }
    barrier();
}

// Issues the loads of the tile of tokens from t on.
void load_tile(uint t) {
    if (t >= own_end) return;
    uint last = pc.tokens - 1u;
    uint key_head = head() / pc.ratio;
    [[unroll]] for (uint i = 0u; i < KEY_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        uint token = min(t + n / (KEYS / 4u), last);
        uint d = n % (KEYS / 4u) * 4u;
        uint q_at = token * pc.q_strides.x + key_head * pc.q_strides.y + d;
        uint k_at = token * pc.k_strides.x + key_head * pc.k_strides.y + d;
        q_next[i] = k_next[i] = vec4(0.0);
#ifdef KEYS_WIDE
        if (d < pc.key_dim) {
            load4_q(pc.q, q_at, q_next[i]);
            load4_k(pc.k, k_at, k_next[i]);
        }
#else
        [[unroll]] for (uint j = 0u; j < 4u; ++j) {
            if (d + j >= pc.key_dim) continue;
            q_next[i][j] = load_q(pc.q, q_at + j);
            k_next[i][j] = load_k(pc.k, k_at + j);
        }
#endif
    }
    [[unroll]] for (uint i = 0u; i < VALUE_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        uint token = min(t + n / GROUP_VALUES, last);
        uint d = min(value_of_group(n % GROUP_VALUES), pc.value_dim - 1u);
        v_next[i] = load_v(pc.v, token * pc.v_strides.x + head() * pc.v_strides.y + d);
    }
    [[unroll]] for (uint i = 0u; i < GATE_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n >= TILE) continue;
        uint token = t + n;
        uint gate = min(token, last) * gl_NumWorkGroups.y + head();
        decay_next[i] = load_decay(pc.decay, gate);
        beta_next[i] = load_beta(pc.beta, gate);
        bool own = token < own_end && is_own(token);
        position_next[i] = own ? max(load_positions(pc.positions, token), -1) : OTHER_SEQUENCE;
    }
}

// Stores the loaded tile in shared memory.
void share_tile() {
    [[unroll]] for (uint i = 0u; i < KEY_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n < TILE * KEYS / 4u) {
            q_tile[n] = q_next[i];
            k_tile[n] = k_next[i];
        }
    }
    [[unroll]] for (uint i = 0u; i < VALUE_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n < TILE * GROUP_VALUES) v_tile[n] = v_next[i];
    }
    [[unroll]] for (uint i = 0u; i < GATE_PARTS; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n < TILE) {
            decay_tile[n] = decay_next[i];
            beta_tile[n] = beta_next[i];
            position_tile[n] = position_next[i];
        }
    }
    barrier();
    // k · q does not depend on the state: rows divide the tile's tokens.
    for (uint first = 0u; first < TILE; first += ROWS) {
        uint i = first + row_in_group();
        vec4 products = vec4(0.0);
        [[unroll]] for (uint j = 0u; j < FOURS; ++j) {
            uint at = key_at(min(i, TILE - 1u), j);
            products = fma(k_tile[at], q_tile[at], products);
        }
        float kq = sum_lanes(vec2(sum_of(products), 0.0)).x;
        if (i < TILE && lane() == 0u) kq_tile[i] = kq;
    }
    barrier();
}

void take(uint i, uint t, int position) {
    float outputs[VALUES];
    [[unroll]] for (uint n = 0u; n < VALUES; ++n) outputs[n] = 0.0;
    if (position >= 0) {
        vec4 q[FOURS], k[FOURS];
        [[unroll]] for (uint j = 0u; j < FOURS; ++j) {
            q[j] = q_tile[key_at(i, j)];
            k[j] = k_tile[key_at(i, j)];
        }
        if (position == 0) reset_state();
        float decay = decay_tile[i], beta = beta_tile[i], kq = kq_tile[i];
        [[unroll]] for (uint n = 0u; n < VALUES; ++n) {
            vec4 state_k = vec4(0.0), state_q = vec4(0.0);
            [[unroll]] for (uint j = 0u; j < FOURS; ++j) {
                state[n][j] *= decay;
                state_k = fma(state[n][j], k[j], state_k);
                state_q = fma(state[n][j], q[j], state_q);
            }
            vec2 sums = sum_lanes(vec2(sum_of(state_k), sum_of(state_q)));
            float delta = beta * (v_tile[i * GROUP_VALUES + row_in_group() * VALUES + n] - sums.x);
            [[unroll]] for (uint j = 0u; j < FOURS; ++j) state[n][j] = fma(vec4(delta), k[j], state[n][j]);
            outputs[n] = fma(delta, kq, sums.y);
        }
    }
#ifndef STATE_ONLY
    uint y_at = t * pc.y_strides.x + head() * pc.y_strides.y;
    [[unroll]] for (uint n = 0u; n < VALUES; ++n) {
        if (lane() == 0u && value(n) < pc.value_dim) store_y(pc.y, y_at + value(n), outputs[n]);
    }
#endif
}

void main() UNIFORM_FLOW {
    find_own_tokens();
    if (own_end == 0u) return;
    load_tile(own_begin);
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
        [[unroll]] for (uint j = 0u; j < EACH; ++j) {
            uint d = key_of(j);
            state[i][j / 4u][j % 4u] = d < pc.key_dim ? load_state(pc.state, state_at(i) + d) : 0.0;
        }
    }
    bool changed = false;
    for (uint t = own_begin; t < own_end; t += TILE) {
        share_tile();
        load_tile(t + TILE);
        for (uint i = 0u; i < TILE; ++i) {
            int position = position_tile[i];
            if (position == OTHER_SEQUENCE) continue;
            changed = changed || position >= 0;
            take(i, t + i, position);
        }
        barrier();
    }
#ifndef RESULTS_ONLY
    if (!changed) return;
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
        if (value(i) >= pc.value_dim) continue;
        [[unroll]] for (uint j = 0u; j < EACH; ++j) {
            uint d = key_of(j);
            if (d < pc.key_dim) store_state(pc.state, state_at(i) + d, state[i][j / 4u][j % 4u]);
        }
    }
#endif
}
