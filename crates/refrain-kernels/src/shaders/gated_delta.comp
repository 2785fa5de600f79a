// A row of invocations goes through the tokens of one sequence for one value of one head: its row of the
// head's memory is spread over LANES invocations, EACH values to one.
layout(constant_id = 5) const uint EACH = 4;

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

float memory[EACH];

float step_by(uint t, uint head, uint value, bool first) {
    uint key_head = head / pc.ratio;
    uint q_at = t * pc.q_strides.x + key_head * pc.q_strides.y;
    uint k_at = t * pc.k_strides.x + key_head * pc.k_strides.y;
    uint gate = t * gl_NumWorkGroups.y + head;
    float decay = load_decay(pc.decay, gate);
    float q[EACH], k[EACH];
    float known = 0.0;
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        bool inside = d < pc.key_dim;
        q[i] = inside ? load_q(pc.q, q_at + d) : 0.0;
        k[i] = inside ? load_k(pc.k, k_at + d) : 0.0;
        memory[i] = first ? 0.0 : memory[i] * decay;
        known += memory[i] * k[i];
    }
    float v = load_v(pc.v, t * pc.v_strides.x + head * pc.v_strides.y + value);
    float delta = load_beta(pc.beta, gate) * (v - sum_lanes(known));
    float answer = 0.0;
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        memory[i] += delta * k[i];
        answer += memory[i] * q[i];
    }
    return sum_lanes(answer);
}

void main() {
    uint value = gl_WorkGroupID.x * ROWS + row_in_group();
    uint head = gl_WorkGroupID.y;
    uint sequence = gl_WorkGroupID.z;
    // Rows beyond the last take part in the sums, which the whole workgroup computes.
    bool inside = value < pc.value_dim;
    value = min(value, pc.value_dim - 1u);
    uint state_at = ((sequence * gl_NumWorkGroups.y + head) * pc.value_dim + value) * pc.key_dim;
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        memory[i] = d < pc.key_dim ? load_state(pc.state, state_at + d) : 0.0;
    }
    bool changed = false;
    for (uint t = 0u; t < pc.tokens; ++t) {
        if (min(load_sequences(pc.sequences, t), gl_NumWorkGroups.z - 1u) != sequence) continue;
        int position = load_positions(pc.positions, t);
        float answer = 0.0;
        if (position >= 0) {
            changed = true;
            answer = step_by(t, head, value, position == 0);
        }
        if (inside && lane() == 0u) store_y(pc.y, t * pc.y_strides.x + head * pc.y_strides.y + value, answer);
    }
    if (!changed || !inside) return;
    [[unroll]] for (uint i = 0u; i < EACH; ++i) {
        uint d = lane() + i * LANES;
        if (d < pc.key_dim) store_state(pc.state, state_at + d, memory[i]);
    }
}
