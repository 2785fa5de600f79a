// Weights of 16-bit floats: a chunk is CHUNK consecutive values.
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer w_wide { uvec4 at[]; };

struct Chunk { uint words[CHUNK / 2]; };

Chunk load_chunk(Planes planes, uint row, uint number) {
    Chunk chunk;
    uint at = (row * W_STRIDE + number * CHUNK) / 8u;
    [[unroll]] for (uint i = 0u; i < CHUNK / 8u; ++i) {
        uvec4 words = w_wide(planes.w).at[at + i];
        [[unroll]] for (uint j = 0u; j < 4u; ++j) chunk.words[4u * i + j] = words[j];
    }
    return chunk;
}

// Returns values j and j + 4 of eight. `pair` numbers the pairs.
f16vec2 chunk_pair(Chunk chunk, uint pair) {
    uint word = pair / 4u * 4u + pair % 4u / 2u;
    uint low = chunk.words[word];
    uint high = chunk.words[word + 2u];
    uint bits = pair % 2u == 0u ? (low & 0xffffu) | (high << 16) : (low >> 16) | (high & 0xffff0000u);
#ifdef BFLOAT16
    vec2 values = uintBitsToFloat(uvec2(bits << 16, bits & 0xffff0000u));
    return f16vec2(clamp(values, -65504.0, 65504.0));
#else
    return unpackFloat2x16(bits);
#endif
}
