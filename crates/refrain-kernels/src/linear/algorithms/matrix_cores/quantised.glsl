// Dequantises chunks to f16.
const uint MASK = (1u << BITS) - 1u;

// Zero at run time. If compilers knew that, they would use two instructions for mask and offset instead of one.
uint unknown_zero = COLUMNS >> 31;

// Converts two masked integers below 2^BITS to f16, minus ZERO. An integer in the low bits of the mantissa of 1024 adds
// exactly its value; shifted by four bits, the same holds for 64.
#define RAISED(bits, mask) \
    (unpackFloat2x16(((bits) & (mask)) | (0x64006400u | unknown_zero)) - f16vec2(1024.0 + ZERO))
#define RAISED_BY_FOUR(bits, mask) \
    (unpackFloat2x16(((bits) & (mask)) | (0x54005400u | unknown_zero)) - f16vec2(64.0 + ZERO))

// Returns the integers of values j and j + 4 of eight, minus ZERO. `pair` numbers the pairs.
f16vec2 chunk_numbers(Chunk chunk, uint pair) {
    uint j = pair % 4u;
#ifdef BOOK
    // Pairs j and j + 2 share the lookup; a word has every second value.
    uint bytes = book_bytes((chunk.words[pair / 4u] >> (4u * (j & 1u))) & 0x0f0f0f0fu);
    return RAISED(bytes >> (8u * (j / 2u)), 0x00ff00ffu);
#elif BITS == 4
    uint bits = chunk.words[pair / 4u] >> (8u * (j / 2u));
    return j % 2u == 0u ? RAISED(bits, 0x000f000fu) : RAISED_BY_FOUR(bits, 0x00f000f0u);
#elif BITS == 8
    uint first = chunk.words[pair / 4u * 2u];
    uint second = chunk.words[pair / 4u * 2u + 1u];
#ifdef ZERO_SIGNED
    first ^= 0x80808080u;
    second ^= 0x80808080u;
#endif
    // Interleaves two bytes of each word.
    uint bits = j < 2u ? (first & 0xffffu) | second << 16 : first >> 16 | (second & 0xffff0000u);
    return RAISED(bits >> (8u * (j % 2u)), 0x00ff00ffu);
#else
    // Interleaves two values of each quad.
    uint low = quad_bits(chunk, pair / 4u * 2u) >> (2u * BITS * (j / 2u));
    uint high = quad_bits(chunk, pair / 4u * 2u + 1u) >> (2u * BITS * (j / 2u));
    uint bits = (low & 0xffffu) | high << 16;
    return RAISED(bits >> (BITS * (j % 2u)), MASK | MASK << 16);
#endif
}

// Returns those values, dequantised.
f16vec2 chunk_pair(Chunk chunk, uint pair) {
    f16vec2 numbers = chunk_numbers(chunk, pair);
    vec2 parameters = chunk.parameters[pair * 2u / (CHUNK / TERMS)];
#ifdef ZERO_BIAS
    return fma(numbers, f16vec2(parameters.x), f16vec2(parameters.y));
#else
    return numbers * f16vec2(parameters.x);
#endif
}
