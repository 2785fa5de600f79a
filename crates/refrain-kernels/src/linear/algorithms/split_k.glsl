// Split-K: K_SPLITS workgroups with consecutive numbers share the sums of a tile over k. Each stores its partial sums,
// and the last one to arrive adds all of them, always in the same order.
uint result_number() { return group_number() / uint(K_SPLITS); }
uint k_split() { return group_number() % uint(K_SPLITS); }

#if K_SPLITS > 1
// Position of vec4 `four` of this invocation's `fours` vec4s of partial sums in split `part`.
uint partial_sum_at(uint part, uint four, uint fours) {
    return ((result_number() * uint(K_SPLITS) + part) * fours + four) * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
}

// Whether this workgroup is the last of its tile to arrive.
bool arrives_last() { return arrives_last(result_number(), uint(K_SPLITS)); }
#endif
