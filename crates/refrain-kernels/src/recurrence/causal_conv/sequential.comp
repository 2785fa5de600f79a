// An invocation goes through the tokens of one sequence for one channel and keeps the channel's last TAPS inputs in
// registers.
void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint channel = number % pc.channels;
    uint sequence = number / pc.channels;
    if (sequence >= pc.states) return;
    uint at = state_at(sequence, channel);
    float weights[TAPS];
    values[0] = 0.0;
    [[unroll]] for (uint j = 0u; j < TAPS; ++j) {
        weights[j] = load_weights(pc.weights, channel * TAPS + j);
        if (j > 0u) values[j] = load_state(pc.state, at + (j - 1u) * pc.channels);
    }
    bool changed = false;
    for (uint t = 0u; t < pc.tokens; ++t) {
        if (sequence_of(t) != sequence) continue;
        int position = load_positions(pc.positions, t);
        float sum = 0.0;
        if (position >= 0) {
            changed = true;
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) {
                values[j - 1u] = position == 0 ? 0.0 : values[j];
                sum = fma(weights[j - 1u], values[j - 1u], sum);
            }
            values[TAPS - 1u] = load_x(pc.x, t * pc.x_stride + channel);
            sum = fma(weights[TAPS - 1u], values[TAPS - 1u], sum);
        }
        store_y(pc.y, t * pc.y_stride + channel, sum);
    }
#ifndef RESULTS_ONLY
    if (!changed) return;
    [[unroll]] for (uint j = 1u; j < TAPS; ++j) store_state(pc.state, at + (j - 1u) * pc.channels, values[j]);
#endif
}
