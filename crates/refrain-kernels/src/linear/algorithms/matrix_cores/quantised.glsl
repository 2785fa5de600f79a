// The values of quantised chunks as halves.
const uint MASK = (1u << BITS) - 1u;

// Values j and j + 4 of eight, of which pair counts the pairs. An integer in the low bits of 1024's mantissa
// is that much more, exactly.
f16vec2 chunk_pair(Chunk chunk, uint pair) {
    uint j = pair % 4u;
#ifdef BOOK
    // Shared by j and j + 2, of which one word has every second value.
    uint bytes = book_bytes((chunk.words[pair / 4u] >> (4u * (j & 1u))) & 0x0f0f0f0fu);
    uint bits = (bytes >> (8u * (j / 2u))) & 0x00ff00ffu;
#elif BITS == 4
    uint bits = (chunk.words[pair / 4u] >> (4u * j)) & 0x000f000fu;
#elif BITS == 8
    uint low = chunk.words[pair / 4u * 2u] >> (8u * j) & 0xffu;
    uint high = chunk.words[pair / 4u * 2u + 1u] >> (8u * j) & 0xffu;
    uint bits = low | (high << 16);
#ifdef ZERO_SIGNED
    bits ^= 0x00800080u;
#endif
#else
    uint low = quad_bits(chunk, pair / 4u * 2u) >> (BITS * j) & MASK;
    uint high = quad_bits(chunk, pair / 4u * 2u + 1u) >> (BITS * j) & MASK;
    uint bits = low | (high << 16);
#endif
    f16vec2 raised = unpackFloat2x16(bits | 0x64006400u) - f16vec2(1024.0 + ZERO);
    vec2 parameters = chunk.parameters[pair * 2u / (CHUNK / TERMS)];
#ifdef ZERO_BIAS
    return fma(raised, f16vec2(parameters.x), f16vec2(parameters.y));
#else
    return raised * f16vec2(parameters.x);
#endif
}
