// Workgroups that share a result's sums over k: each leaves its own in memory, and the one that comes last adds
// all of them, always in the same order. K_PARTS of them follow each other.
uint result_number() { return group_number() / uint(K_PARTS); }
uint k_part() { return group_number() % uint(K_PARTS); }

#if K_PARTS > 1
// Where this invocation's four sums, number `four` of `fours`, lie that workgroup `part` left.
uint four_at(uint part, uint four, uint fours) {
    return ((result_number() * uint(K_PARTS) + part) * fours + four) * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
}

// Whether this workgroup is the last of its result's to come here.
bool arrives_last() { return arrives_last(result_number(), uint(K_PARTS)); }
#endif
