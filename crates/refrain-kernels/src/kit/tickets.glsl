// The last workgroup finishes: those that share something leave what they have in memory that is declared coherent, and
// each takes a ticket. Behind all other shared memory, which it would leave less aligned.
shared uint arrived;

// Whether this workgroup is the last of `workgroups` to come here. It then sees what the others left, and the counter
// is zero again.
bool arrives_last(uint ticket, uint workgroups) {
    // One invocation makes known to the device what all have stored: a barrier of that scope is what costs most here.
    groupMemoryBarrier();
    barrier();
    if (gl_LocalInvocationIndex == 0u) {
        memoryBarrierBuffer();
        arrived = atomicAdd(pc.tickets.at[ticket], 1u);
        if (arrived + 1u == workgroups) atomicExchange(pc.tickets.at[ticket], 0u);
        memoryBarrierBuffer();
    }
    barrier();
    groupMemoryBarrier();
    return arrived + 1u == workgroups;
}
