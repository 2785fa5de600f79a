// Reads memory as fast as it can be read: each workgroup a stretch of its own, each invocation four
// loads of 16 bytes in flight.
#version 460
#extension GL_EXT_buffer_reference : require

const uint LANES = 128u;

layout(local_size_x = LANES) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Memory { uvec4 at[]; };
layout(push_constant) uniform Push {
    Memory memory;
    // Rounds of four loads.
    uint rounds;
};

void main() {
    uint place = gl_WorkGroupID.x * rounds * 4u * LANES + gl_LocalInvocationID.x;
#ifdef FILL
    // No two words alike: what is equal may be compressed.
    for (uint i = 0u; i < 4u * rounds; ++i, place += LANES)
        memory.at[place] = place * uvec4(0x9e3779b9u, 0x85ebca6bu, 0xc2b2ae35u, 0x27d4eb2fu);
#else
    uvec4 sum = uvec4(0u);
    for (uint i = 0u; i < rounds; ++i, place += 4u * LANES) {
        uvec4 a = memory.at[place], b = memory.at[place + LANES];
        uvec4 c = memory.at[place + 2u * LANES], d = memory.at[place + 3u * LANES];
        sum += (a ^ b) + (c ^ d);
    }
    // Practically never true, which no compiler can know: the loads must be made.
    if (sum == uvec4(0x12345678u, 0x9abcdef0u, 0x0fedcba9u, 0x87654321u)) memory.at[0] = sum;
#endif
}
