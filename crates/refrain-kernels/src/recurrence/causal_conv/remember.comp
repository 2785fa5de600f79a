// What is left of each sequence for the next call; an invocation takes one sequence and one channel.
void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint channel = number % pc.channels;
    uint sequence = number / pc.channels;
    if (sequence >= pc.states || look_back(pc.tokens, sequence, channel) == 0u) return;
    uint at = state_at(sequence, channel);
    [[unroll]] for (uint j = 1u; j < TAPS; ++j) store_state(pc.state, at + (j - 1u) * pc.channels, values[j]);
}
