// Quantised weights: BITS per value, GROUP values to a scale (and a bias).
// ZERO_EIGHT: s (q - 8); ZERO_SIGNED: s q with q in two's complement; ZERO_BIAS: s q + b.
layout(constant_id = 8) const uint GROUP = 32;

const uint PER_WORD = 32u / BITS;

#ifdef ZERO_EIGHT
const float ZERO = 8.0;
#elif defined ZERO_SIGNED
const float ZERO = 128.0;
#else
const float ZERO = 0.0;
#endif

// The value at bit `at` (12 at most) of `bits`, less ZERO. Beside the exponent of 2^23 the masked bits
// are a float's, 2^23 + value · 2^at, and one exact step leaves the value: fewer instructions than a
// shift and a conversion take.
float quant(uint bits, uint at) {
    float unit = uintBitsToFloat((127u - at) << 23); // 2^-at
    uint masked = bits & (((1u << BITS) - 1u) << at);
    return fma(uintBitsToFloat(masked | 0x4b000000u), unit, -(8388608.0 * unit + ZERO));
}

// Four neighbouring quantised values, from value `from` of a word on, around their zero.
vec4 quants(uint word, uint from) {
#ifdef ZERO_SIGNED
    word ^= 0x80808080u; // two's complement, raised by ZERO
#endif
#if BITS == 4
    uint bits = word >> (4u * from);
    return vec4(quant(bits, 0u), quant(bits, 4u), quant(bits, 8u), quant(bits, 12u));
#else
    uint upper = word >> 16;
    return vec4(quant(word, 0u), quant(word, 8u), quant(upper, 0u), quant(upper, 8u));
#endif
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
