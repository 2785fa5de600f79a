// The last workgroup to arrive does the final work. Workgroups store their results in coherent memory, and each takes a
// ticket. This must follow all other shared memory, whose alignment it would reduce.
shared uint arrived;

// Barrier with memory semantics: all invocations of the workgroup see what any of them has stored or seen.
void meet_workgroup() {
    const int kinds = gl_StorageSemanticsBuffer | gl_StorageSemanticsShared;
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, kinds, gl_SemanticsAcquireRelease);
}

// Returns whether this workgroup is the last of `workgroups` to arrive. It then sees the results of the others, and the
// counter is zero again. One invocation synchronises with the device through the atomic ticket itself: device-scope
// barriers are the most expensive part.
bool arrives_last(uint ticket, uint workgroups) {
    meet_workgroup();
    if (gl_LocalInvocationIndex == 0u) {
        arrived = atomicAdd(pc.tickets.at[ticket], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        if (arrived + 1u == workgroups) atomicStore(pc.tickets.at[ticket], 0u, gl_ScopeDevice, 0, gl_SemanticsRelaxed);
    }
    meet_workgroup();
    return arrived + 1u == workgroups;
}
