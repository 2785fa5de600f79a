// An invocation takes RUN neighbouring tokens for one channel. It looks back once per sequence among them.
layout(constant_id = 4) const uint RUN = 8;

void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint channel = number % pc.channels;
    uint begin = number / pc.channels * RUN;
    if (begin >= pc.tokens) return;
    uint last = pc.tokens - 1u;
    float weights[TAPS];
    [[unroll]] for (uint j = 0u; j < TAPS; ++j) weights[j] = load_weights(pc.weights, channel * TAPS + j);
    // All loads are issued before the first use.
    float x[RUN];
    [[unroll]] for (uint i = 0u; i < RUN; ++i) x[i] = load_x(pc.x, min(begin + i, last) * pc.x_stride + channel);
    // The sequence whose last inputs `values` holds.
    uint current = pc.states;
    [[unroll]] for (uint i = 0u; i < RUN; ++i) {
        uint t = begin + i;
        if (t > last) return;
        int position = load_positions(pc.positions, t);
        float sum = 0.0;
        if (position >= 0) {
            uint sequence = sequence_of(t);
            if (position == 0) {
                [[unroll]] for (uint j = 1u; j < TAPS; ++j) values[j] = 0.0;
            } else if (sequence != current) {
                look_back(t, sequence, channel);
            }
            current = sequence;
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) sum = fma(weights[j - 1u], values[j], sum);
            sum = fma(weights[TAPS - 1u], x[i], sum);
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) values[j - 1u] = values[j];
            values[TAPS - 1u] = x[i];
        }
        store_y(pc.y, t * pc.y_stride + channel, sum);
    }
}
