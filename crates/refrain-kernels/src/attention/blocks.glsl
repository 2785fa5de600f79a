// Access to a state whose heads are blocks with f16 scales; blocks.rs describes the layout. A row is a head of a slot,
// a unit eight neighbouring values.
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer NAME_words { uint at[]; };
layout(buffer_reference, scalar, buffer_reference_align = UNIT_BYTES) buffer NAME_units { UNIT_TYPE at[]; };

// The quants of a unit, the word with the scales of its block and a neighbour, and where its own scale is in it.
struct NAME_unit { UNIT_TYPE quants; uint scales, shift; };

uint NAME_quant_words(uint dim) { return dim * BITS / 32u; }
uint NAME_row_units(uint dim) { return (NAME_quant_words(dim) + (dim + 63u) / 64u + BITS / 4u - 1u) / (BITS / 4u); }
uint NAME_row_words(uint dim) { return NAME_row_units(dim) * (BITS / 4u); }

float NAME_scale(uint scales, uint shift) { return f16_to_f32(scales >> shift & 0xffffu); }

vec2 NAME_quants(uint word, uint bit) {
    return vec2(bitfieldExtract(int(word), int(bit), int(BITS)), bitfieldExtract(int(word), int(bit + BITS), int(BITS)));
}

NAME_unit load_unit_NAME(uvec2 state, uint dim, uint row, uint unit) {
    NAME_unit loaded;
    loaded.quants = NAME_units(state).at[row * NAME_row_units(dim) + unit];
    loaded.scales = NAME_words(state).at[row * NAME_row_words(dim) + NAME_quant_words(dim) + unit / 8u];
    loaded.shift = unit / 4u % 2u * 16u;
    return loaded;
}

// Returns pair `i` of a unit's quants. The float 2^23 + n has n as its last bits.
vec2 NAME_unit_quants(NAME_unit unit, uint i) {
    const uint half_range = 1u << (BITS - 1u);
    const uint mask = (1u << BITS) - 1u;
    uint bit = 2u * i * BITS;
    uint word = UNIT_WORD ^ half_range * (0xffffffffu / mask);
    uvec2 last_bits = uvec2(word >> bit % 32u, word >> bit % 32u + BITS) & mask;
    return uintBitsToFloat(last_bits | 0x4b000000u) - (8388608.0 + float(half_range));
}

// Returns a unit's quants as signed bytes, times 2^(8 - BITS).
ivec2 NAME_bytes(NAME_unit unit) { return ivec2(AS_BYTES); }

// Number in the unit of the value that byte `b` of word `w` holds.
uint NAME_byte_value(uint w, uint b) { return BITS == 8u ? 4u * w + b : 2u * b + w; }

// Returns pair `i` of a unit.
vec2 NAME_pair(NAME_unit unit, uint i) {
    uint bit = 2u * i * BITS;
    return NAME_scale(unit.scales, unit.shift) * NAME_quants(UNIT_WORD, bit % 32u);
}

// Returns pair `pair` of a row.
vec2 load_pair_NAME(uvec2 state, uint dim, uint row, uint pair) {
    uint at = row * NAME_row_words(dim);
    uint bit = 2u * pair * BITS;
    uint word = NAME_words(state).at[at + bit / 32u];
    uint scales = NAME_words(state).at[at + NAME_quant_words(dim) + pair / 32u];
    return NAME_scale(scales, pair / 16u % 2u * 16u) * NAME_quants(word, bit % 32u);
}

// Replaces `largest` by `value` if its magnitude is larger; infinities and NaN are the largest.
void NAME_fold(inout float largest, float value) {
    if ((floatBitsToUint(value) & 0x7fffffffu) > (floatBitsToUint(largest) & 0x7fffffffu)) largest = value;
}

// Bits of the f16 scale of a block whose value of largest magnitude is `largest`.
uint NAME_scale_of(float largest) {
    uint bits = f32_to_f16(largest / EXTREME);
    return (floatBitsToUint(largest) & 0x7fffffffu) >= 0x7f800000u || (bits & 0x7fffu) >= 0x7c00u ? 0x7e00u : bits;
}

// Returns a value's quant, moved to bit `bit` of a word.
uint NAME_quant_of(float value, uint scale_bits, uint bit) {
    float scale = f16_to_f32(scale_bits);
    float quant = scale_bits == 0x7e00u || scale == 0.0 ? 0.0 : roundEven(value / scale);
    return (uint(int(clamp(quant, LEAST, MOST))) & ((1u << BITS) - 1u)) << bit;
}
