// Reads memory as fast as possible: each workgroup reads its own part, each invocation has four 16-byte loads in
// flight.
#version 460
#extension GL_EXT_buffer_reference : require

const uint INVOCATIONS = 128u;

layout(local_size_x = INVOCATIONS) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Memory { uvec4 vectors[]; };
layout(push_constant) uniform Push {
    Memory memory;
    // Number of rounds of four loads.
    uint rounds;
};

void main() {
    uint index = gl_WorkGroupID.x * rounds * 4u * INVOCATIONS + gl_LocalInvocationID.x;
#ifdef FILL
    // All words differ, since equal data may be compressed.
    for (uint i = 0u; i < 4u * rounds; ++i, index += INVOCATIONS)
        memory.vectors[index] = index * uvec4(0x9e3779b9u, 0x85ebca6bu, 0xc2b2ae35u, 0x27d4eb2fu);
#else
    uvec4 sum = uvec4(0u);
    for (uint i = 0u; i < rounds; ++i, index += 4u * INVOCATIONS) {
        uvec4 a = memory.vectors[index], b = memory.vectors[index + INVOCATIONS];
        uvec4 c = memory.vectors[index + 2u * INVOCATIONS], d = memory.vectors[index + 3u * INVOCATIONS];
        sum += (a ^ b) + (c ^ d);
    }
    // Practically never true, but the compiler cannot know that, so it must keep the loads.
    if (sum == uvec4(0x12345678u, 0x9abcdef0u, 0x0fedcba9u, 0x87654321u)) memory.vectors[0] = sum;
#endif
}
