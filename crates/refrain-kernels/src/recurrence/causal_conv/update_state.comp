// Stores the last inputs of each sequence for the next call. An invocation takes one sequence and one channel. Most
// sequences have no token in this call, so a workgroup searches for them together.
shared uint end;

void main() {
    uint channel = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint sequence = gl_WorkGroupID.y;
    if (gl_LocalInvocationID.x == 0u) end = 0u;
    barrier();
    uint own = 0u;
    for (uint t = gl_LocalInvocationID.x; t < pc.tokens; t += gl_WorkGroupSize.x) {
        if (sequence_of(t) == sequence) own = t + 1u;
    }
    if (own > 0u) atomicMax(end, own);
    barrier();
    if (end == 0u || channel >= pc.channels || look_back(end, sequence, channel) == 0u) return;
    uint at = state_at(sequence, channel);
    [[unroll]] for (uint j = 1u; j < TAPS; ++j) store_state(pc.state, at + (j - 1u) * pc.channels, values[j]);
}
