// An invocation takes one token and one channel.
void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint channel = number % pc.channels;
    uint t = number / pc.channels;
    if (t >= pc.tokens) return;
    int position = load_positions(pc.positions, t);
    float sum = 0.0;
    if (position >= 0) {
        if (position > 0) {
            look_back(t, sequence_of(t), channel);
        } else {
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) values[j] = 0.0;
        }
        uint at = channel * TAPS;
        [[unroll]] for (uint j = 1u; j < TAPS; ++j) sum = fma(load_weights(pc.weights, at + j - 1u), values[j], sum);
        sum = fma(load_weights(pc.weights, at + TAPS - 1u), load_x(pc.x, t * pc.x_stride + channel), sum);
    }
    store_y(pc.y, t * pc.y_stride + channel, sum);
}
