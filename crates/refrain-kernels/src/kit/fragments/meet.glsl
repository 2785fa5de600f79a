// What lanes of the subgroup have stored is there for all of them.
void meet() {
#ifdef LOCKSTEP
    // All subgroups would have to come, though lanes go together anyway.
    memoryBarrier(gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#else
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#endif
}

f16vec4 four_of(uint low, uint high) { return f16vec4(unpackFloat2x16(low), unpackFloat2x16(high)); }
