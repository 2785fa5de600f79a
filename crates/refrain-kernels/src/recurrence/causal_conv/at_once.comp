// An invocation takes one token and one channel.

// Whether the tokens before are the sequence's own, as they nearly always are: all are asked at once, where to look
// back waits for each before the next.
bool follows_its_own(uint t, uint sequence) {
    if (t + 1u < TAPS) return false;
    uint own = 1u;
    [[unroll]] for (uint j = 1u; j < TAPS; ++j) {
        int position = load_positions(pc.positions, t - j);
        // What is before a sequence's first token is zero, so only the oldest may be that.
        own &= uint(sequence_of(t - j) == sequence) & uint(position >= (j + 1u < TAPS ? 1 : 0));
    }
    return own != 0u;
}

void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint channel = number % pc.channels;
    uint t = number / pc.channels;
    if (t >= pc.tokens) return;
    int position = load_positions(pc.positions, t);
    float sum = 0.0;
    if (position >= 0) {
        uint sequence = sequence_of(t);
        if (position > 0 && follows_its_own(t, sequence)) {
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) values[TAPS - j] = load_x(pc.x, (t - j) * pc.x_stride + channel);
        } else if (position > 0) {
            look_back(t, sequence, channel);
        } else {
            [[unroll]] for (uint j = 1u; j < TAPS; ++j) values[j] = 0.0;
        }
        uint at = channel * TAPS;
        [[unroll]] for (uint j = 1u; j < TAPS; ++j) sum = fma(load_weights(pc.weights, at + j - 1u), values[j], sum);
        sum = fma(load_weights(pc.weights, at + TAPS - 1u), load_x(pc.x, t * pc.x_stride + channel), sum);
    }
    store_y(pc.y, t * pc.y_stride + channel, sum);
}
