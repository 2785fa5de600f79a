// The last workgroup finishes: those that share something leave what they have in memory that is declared coherent, and
// each takes a ticket. Behind all other shared memory, which it would leave less aligned.
shared uint arrived;

// What all invocations of the workgroup have stored, and what any of them knows of, is known to all.
void meet_workgroup() {
    const int kinds = gl_StorageSemanticsBuffer | gl_StorageSemanticsShared;
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, kinds, gl_SemanticsAcquireRelease);
}

// Whether this workgroup is the last of `workgroups` to come here. It then sees what the others left, and the counter
// is zero again. One invocation tells the device, by the ticket itself: barriers of that scope are what costs most here.
bool arrives_last(uint ticket, uint workgroups) {
    meet_workgroup();
    if (gl_LocalInvocationIndex == 0u) {
        arrived = atomicAdd(pc.tickets.at[ticket], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        if (arrived + 1u == workgroups) atomicStore(pc.tickets.at[ticket], 0u, gl_ScopeDevice, 0, gl_SemanticsRelaxed);
    }
    meet_workgroup();
    return arrived + 1u == workgroups;
}
