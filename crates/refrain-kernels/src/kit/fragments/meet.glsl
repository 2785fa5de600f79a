// Subgroup barrier: all lanes see what any of them has stored in shared memory.
void meet() {
#ifdef LOCKSTEP
    // On this driver the barrier would wait for all subgroups, although lanes run in lockstep anyway.
    memoryBarrier(gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#else
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#endif
}

f16vec4 four_of(uint low, uint high) { return f16vec4(unpackFloat2x16(low), unpackFloat2x16(high)); }
