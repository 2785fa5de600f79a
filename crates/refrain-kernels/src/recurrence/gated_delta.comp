// A row of invocations goes through the tokens of one sequence for VALUES values of one head: their rows of the
// head's memory are spread over LANES invocations, EACH values of a row to one. Tokens depend on each other, so
// what one costs is kept short: the next one is loaded meanwhile, and all sums that a token needs are of what was
// there before it: (M + δ kᵀ) q = M q + δ (k · q). Nothing is left to compilers that they might round in two ways:
// the bits are the same whatever VALUES is.
layout(constant_id = 5) const uint EACH = 4;
layout(constant_id = 6) const uint VALUES = 1;

layout(push_constant, scalar) uniform Push {
    q_ref q;
    k_ref k;
    v_ref v;
    decay_ref decay;
    beta_ref beta;
    positions_ref positions;
    sequences_ref sequences;
    state_ref state;
    y_ref y;
    uint tokens;
    uint ratio; // value heads per key head
    uint key_dim, value_dim;
    uvec2 q_strides, k_strides, v_strides, y_strides; // between tokens, between heads
} pc;

float memory[VALUES][EACH];

// The token that is next.
float q_next[EACH], k_next[EACH], v_next[VALUES];
float decay_next, beta_next;
int position_next;

uint sequence() { return gl_WorkGroupID.z; }
uint head() { return gl_WorkGroupID.y; }

// The value of the head that is number `i` of this row, and whether there is such.
uint value(uint i) { return (gl_WorkGroupID.x * ROWS + row_in_group()) * VALUES + i; }
uint clamped(uint i) { return min(value(i), pc.value_dim - 1u); }

// The first of the sequence's tokens from t on; the number of tokens if there is none.
uint own_token(uint t) {
    while (t < pc.tokens && min(load_sequences(pc.sequences, t), gl_NumWorkGroups.z - 1u) != sequence()) ++t;
    return t;
}

void load_token(uint t) {
    if (t >= pc.tokens) return;
    uint key_head = head() / pc.ratio;
    uint q_at = t * pc.q_strides.x + key_head * pc.q_strides.y;
    uint k_at = t * pc.k_strides.x + key_head * pc.k_strides.y;
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        bool inside = d < pc.key_dim;
        q_next[i] = inside ? load_q(pc.q, q_at + d) : 0.0;
        k_next[i] = inside ? load_k(pc.k, k_at + d) : 0.0;
    }
    uint v_at = t * pc.v_strides.x + head() * pc.v_strides.y;
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) v_next[i] = load_v(pc.v, v_at + clamped(i));
    uint gate = t * gl_NumWorkGroups.y + head();
    decay_next = load_decay(pc.decay, gate);
    beta_next = load_beta(pc.beta, gate);
    position_next = load_positions(pc.positions, t);
}

uint memory_at(uint i) {
    return ((sequence() * gl_NumWorkGroups.y + head()) * pc.value_dim + clamped(i)) * pc.key_dim;
}

void main() UNIFORM_FLOW {
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
        [[unroll]] for (uint j = 0u; j < EACH; ++j) {
            uint d = lane() + j * LANES;
            memory[i][j] = d < pc.key_dim ? load_state(pc.state, memory_at(i) + d) : 0.0;
        }
    }
    bool changed = false;
    uint t = own_token(0u);
    load_token(t);
    while (t < pc.tokens) {
        float q[EACH], k[EACH], v[VALUES];
        [[unroll]] for (uint j = 0u; j < EACH; ++j) {
            q[j] = q_next[j];
            k[j] = k_next[j];
        }
        [[unroll]] for (uint i = 0u; i < VALUES; ++i) v[i] = v_next[i];
        float decay = decay_next, beta = beta_next;
        int position = position_next;
        uint y_at = t * pc.y_strides.x + head() * pc.y_strides.y;
        t = own_token(t + 1u);
        load_token(t);
        float answers[VALUES];
        [[unroll]] for (uint i = 0u; i < VALUES; ++i) answers[i] = 0.0;
        if (position >= 0) {
            changed = true;
            float both = 0.0;
            [[unroll]] for (uint j = 0u; j < EACH; ++j) both = fma(k[j], q[j], both);
            both = sum_lanes(vec2(both, 0.0)).x;
            [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
                vec2 sums = vec2(0.0);
                [[unroll]] for (uint j = 0u; j < EACH; ++j) {
                    memory[i][j] = position == 0 ? 0.0 : memory[i][j] * decay;
                    sums = fma(vec2(memory[i][j]), vec2(k[j], q[j]), sums);
                }
                sums = sum_lanes(sums);
                float delta = beta * (v[i] - sums.x);
                [[unroll]] for (uint j = 0u; j < EACH; ++j) memory[i][j] = fma(delta, k[j], memory[i][j]);
                answers[i] = fma(delta, both, sums.y);
            }
        }
        [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
            if (lane() == 0u && value(i) < pc.value_dim) store_y(pc.y, y_at + value(i), answers[i]);
        }
    }
    if (!changed) return;
    [[unroll]] for (uint i = 0u; i < VALUES; ++i) {
        if (value(i) >= pc.value_dim) continue;
        [[unroll]] for (uint j = 0u; j < EACH; ++j) {
            uint d = lane() + j * LANES;
            if (d < pc.key_dim) store_state(pc.state, memory_at(i) + d, memory[i][j]);
        }
    }
}
