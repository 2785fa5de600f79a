// Quantised weights: BITS per value, GROUP values to a scale (and a bias).
// ZERO_EIGHT: s (q - 8); ZERO_SIGNED: s q with q in two's complement; ZERO_BIAS: s q + b.
layout(constant_id = 8) const uint GROUP = 32;

const uint PER_WORD = 32u / BITS;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer chunks_ref { uvec4 at[]; };

// Four neighbouring quantised values, from value `from` of a word on, around their zero.
vec4 quants(uint word, uint from) {
#if BITS == 4
    vec4 q = vec4((uvec4(word) >> (4u * from + uvec4(0u, 4u, 8u, 12u))) & 15u);
#elif defined ZERO_SIGNED
    int bits = int(word);
    vec4 q = vec4(bitfieldExtract(bits, 0, 8), bitfieldExtract(bits, 8, 8), bitfieldExtract(bits, 16, 8), bitfieldExtract(bits, 24, 8));
#else
    vec4 q = vec4((uvec4(word) >> uvec4(0u, 8u, 16u, 24u)) & 255u);
#endif
#ifdef ZERO_EIGHT
    q -= 8.0;
#endif
    return q;
}

// The values bit for bit as the reference rounds them: the product to f32, then the sum.
vec4 dequantise(vec4 q, float scale, float bias) {
    precise vec4 value = q * scale;
#ifdef ZERO_BIAS
    precise vec4 sum = value + bias;
    return sum;
#else
    return value;
#endif
}
