// Exact conversions of stored numbers: round to nearest, ties to even; NaN is kept.
#ifdef EXACT_HALVES
float f16_to_f32(uint bits) { return unpackHalf2x16(bits).x; }

// Returns the two f16 of a word.
vec2 unpack_halves(uint bits) { return unpackHalf2x16(bits); }

uint f32_to_f16(float value) {
    // Which NaN a device makes of a NaN is up to it.
    uint bits = floatBitsToUint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 & 0x8000u) | 0x7e00u : packHalf2x16(vec2(value, 0.0));
}
#else
float f16_to_f32(uint bits) {
    // Devices may flush f16 subnormals to zero; computed from integers they are exact.
    if ((bits & 0x7c00u) != 0u) return unpackHalf2x16(bits).x;
    float magnitude = float(bits & 0x3ffu) * 5.9604645e-8;
    return uintBitsToFloat(floatBitsToUint(magnitude) | (bits & 0x8000u) << 16);
}

vec2 unpack_halves(uint bits) { return vec2(f16_to_f32(bits & 0xffffu), f16_to_f32(bits >> 16)); }

uint f32_to_f16(float value) {
    // packHalf2x16 may round towards zero on some drivers, so the rounding is done on the bits. There are no branches,
    // so that a kernel that stores a value and goes on with the rounded value rounds once.
    uint bits = floatBitsToUint(value);
    uint magnitude = bits & 0x7fffffffu;
    uint exponent = magnitude >> 23;
    bool is_subnormal = exponent < 113u;
    uint shift = is_subnormal ? min(126u - exponent, 31u) : 13u;
    uint mantissa = is_subnormal ? (magnitude & 0x7fffffu) | 0x800000u : magnitude - 0x38000000u;
    uint kept = mantissa >> shift;
    uint rest = mantissa & ((1u << shift) - 1u);
    uint tie = 1u << (shift - 1u);
    uint half_bits = kept + uint(rest > tie || (rest == tie && (kept & 1u) == 1u));
    half_bits = magnitude < 0x33000001u ? 0u : half_bits;
    half_bits = magnitude >= 0x477ff000u ? 0x7c00u : half_bits;
    half_bits = magnitude > 0x7f800000u ? 0x7e00u : half_bits;
    return (bits >> 16 & 0x8000u) | half_bits;
}
#endif

float bf16_to_f32(uint bits) { return uintBitsToFloat(bits << 16); }

uint f32_to_bf16(float value) {
    uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// Tests on bits, since compilers may assume that there are no NaN and no infinities.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }

// A constant record: extents, strides and other words that do not fit the push constants.
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer words_ref { uint at[]; };

// The workgroup's number in a two-dimensional grid.
uint group_number() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
