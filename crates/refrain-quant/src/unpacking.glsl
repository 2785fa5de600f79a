// Unpacks quantised weights: BITS per value, GROUP values per scale (and bias).
// ZERO_MIDDLE: s (q - 2^(BITS - 1)). ZERO_SIGNED: s q with q in two's complement. ZERO_BIAS: s q + b.
// BOOK: s book[q]; the text before this one declares book_bytes.
layout(constant_id = 8) const uint GROUP = 32;

// A run is RUN consecutive values, which are loaded at once. If BITS does not divide 32, a run spans one or two words.
#if BITS == 8
const uint RUN = 4u;
#else
const uint RUN = 8u;
#endif
#if BITS == 4 || BITS == 8
#define RUN_BITS uint
#else
#define RUN_BITS uvec2
#endif

#ifdef ZERO_MIDDLE
const float ZERO = float(1u << (BITS - 1u));
#elif defined ZERO_SIGNED || defined BOOK
const float ZERO = 128.0;
#else
const float ZERO = 0.0;
#endif

// Width of the integers that are multiplied with the scale. Codebook entries are bytes with ZERO added.
#ifdef BOOK
#define NUMBER_BITS 8
#else
#define NUMBER_BITS BITS
#endif

// Returns the bits of run `number` of row `row`, for rows of k values.
RUN_BITS load_quants(words_ref quants, uint row, uint k, uint number) {
#if BITS == 4 || BITS == 8
    return quants.at[row * (k / RUN) + number];
#else
    uint words = k / 32u * BITS;
    uint bit = number * RUN * BITS;
    uint first = bit / 32u;
    uint shift = bit % 32u;
    uint low = quants.at[row * words + first];
    // If the run ends in its first word, the next word belongs to the next run and is ignored.
    uint high = quants.at[row * words + min(first + 1u, words - 1u)];
    if (shift == 0u) return uvec2(low, high);
    return uvec2((low >> shift) | (high << (32u - shift)), high >> shift);
#endif
}

// Returns the integer at bit `at` (at most 12) of `bits`, minus ZERO. The masked bits under the exponent of 2^23 form
// the float 2^23 + value · 2^at; one exact fma leaves the value. A shift and a conversion take more instructions.
float quant(uint bits, uint at) {
    float unit = uintBitsToFloat((127u - at) << 23); // 2^-at
    uint masked = bits & (((1u << NUMBER_BITS) - 1u) << at);
    return fma(uintBitsToFloat(masked | 0x4b000000u), unit, -(8388608.0 * unit + ZERO));
}

// Returns the four consecutive values in the low bits of `bits`, minus ZERO.
vec4 four_quants(uint bits) {
#ifdef BOOK
    bits = book_bytes((bits & 0xfu) | (bits & 0xf0u) << 4 | (bits & 0xf00u) << 8 | (bits & 0xf000u) << 12);
#endif
#if NUMBER_BITS == 4
    return vec4(quant(bits, 0u), quant(bits, 4u), quant(bits, 8u), quant(bits, 12u));
#else
#ifdef ZERO_SIGNED
    bits ^= 0x80808080u; // adds ZERO to two's complement
#endif
    uint upper = bits >> (2u * NUMBER_BITS);
    return vec4(quant(bits, 0u), quant(bits, NUMBER_BITS), quant(upper, 0u), quant(upper, NUMBER_BITS));
#endif
}

// Returns four consecutive values of a run from value `from` (0 or 4) on, minus ZERO.
vec4 quants(RUN_BITS run, uint from) {
#if BITS == 4 || BITS == 8
    return four_quants(BITS == 4 ? run >> (4u * from) : run);
#else
    return four_quants(from == 0u ? run.x : (run.x >> (4u * BITS)) | (run.y << (32u - 4u * BITS)));
#endif
}

// Scale (and bias) of a group, numbered over the whole matrix. The planes are members of `planes`.
#ifdef NESTED
#ifndef RECORD_WORDS
#define RECORD_WORDS 5u
#endif
// A scale record covers 256 values: two f16 factors, then one integer byte per group (or two). Returns the words that
// hold a group's parameters: the factors, the scale's integer and, if it is a separate byte, the bias's integer.
uvec3 record_words(scales_ref scales, uint group) {
    const uint per_record = 256u / GROUP;
    uint first = group / per_record * RECORD_WORDS;
    uint g = group % per_record;
    uvec3 words = uvec3(load_scales(scales, first), load_scales(scales, first + 1u + g / 4u), 0u);
#ifdef ZERO_BIAS
    if (GROUP != 16u) words.z = load_scales(scales, first + 3u + g / 4u);
#endif
    return words;
}

// Returns scale and bias of a group. Four groups share the words of record_words.
vec2 record_parameters(uvec3 words, uint group) {
    uint shift = 8u * (group % 4u);
    uint own = (words.y >> shift) & 0xffu;
#ifdef ZERO_BIAS
    vec2 integers = GROUP == 16u ? vec2(own & 15u, own >> 4) : vec2(own, (words.z >> shift) & 0xffu);
    precise vec2 products = vec2(f16_to_f32(words.x & 0xffffu), f16_to_f32(words.x >> 16)) * integers;
    return vec2(products.x, -products.y);
#else
    precise float scale = f16_to_f32(words.x & 0xffffu) * float(bitfieldExtract(int(own), 0, 8));
    return vec2(scale, 0.0);
#endif
}

#define STORED_PARAMETERS uvec3
#define stored_parameters(planes, group) record_words(planes.scales, group)
#define parameters_of(stored, group) record_parameters(stored, group)
#elif defined E8M0
// Returns half of the E8M0 value.
float half_power(uint exponent) {
    return uintBitsToFloat(exponent > 1u ? (exponent - 1u) << 23 : 0x00200000u << exponent);
}
#define STORED_PARAMETERS uint
#define stored_parameters(planes, group) load_scales(planes.scales, group)
#define parameters_of(stored, group) vec2(half_power(stored), 0.0)
#elif defined BIASES
#define STORED_PARAMETERS uvec2
#define stored_parameters(planes, group) uvec2(stored_scales(planes.scales, group), stored_biases(planes.biases, group))
#define parameters_of(stored, group) vec2(scales_of(stored.x), biases_of(stored.y))
#else
#define STORED_PARAMETERS uint
#define stored_parameters(planes, group) stored_scales(planes.scales, group)
#define parameters_of(stored, group) vec2(scales_of(stored), 0.0)
#endif
// stored_parameters can be loaded ahead of their use: only the conversion in parameters_of waits for the load.
#define PARAMETERS(planes, group) parameters_of(stored_parameters(planes, group), group)

// Dequantises bit for bit like the reference: the product is rounded to f32, then the sum.
vec4 dequantise(vec4 q, vec2 parameters) {
    precise vec4 value = q * parameters.x;
#ifdef ZERO_BIAS
    precise vec4 sum = value + parameters.y;
    return sum;
#else
    return value;
#endif
}
