// Defines integer arithmetic where GLSL does not: division by zero is 0, signed division rounds towards zero, and the
// remainder has the dividend's sign.
int divide(int a, int b) {
    // -2^31 / -1 wraps, like its negation.
    return b == 0 ? 0 : (b == -1 ? -a : a / b);
}
uint divide(uint a, uint b) { return b == 0u ? 0u : a / b; }
int remainder_of(int a, int b) { return b == 0 ? 0 : a - divide(a, b) * b; }
uint remainder_of(uint a, uint b) { return b == 0u ? 0u : a % b; }

// Returns (mantissa, exponent) of a finite nonzero magnitude: mantissa · 2^(exponent - 150).
uvec2 split_float(uint bits) {
    uint exponent = bits >> 23;
    return exponent == 0u ? uvec2(bits, 1u) : uvec2((bits & 0x7fffffu) | 0x800000u, exponent);
}

// Returns a - b·trunc(a/b) exactly, by long division of the mantissas, eight bits per step.
float remainder_of(float a, float b) {
    uint x = floatBitsToUint(a) & 0x7fffffffu, y = floatBitsToUint(b) & 0x7fffffffu;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) return uintBitsToFloat(0x7fc00000u);
    if (x < y) return a;
    uvec2 dividend = split_float(x), divisor = split_float(y);
    uint rest = dividend.x % divisor.x;
    for (uint left = dividend.y - divisor.y; left > 0u && rest != 0u;) {
        uint step = min(left, 8u);
        rest = (rest << step) % divisor.x;
        left -= step;
    }
    uint magnitude = 0u;
    if (rest != 0u) {
        // Normalises the mantissa as far as the exponent allows; the result is subnormal below that.
        uint shift = min(uint(23 - findMSB(rest)), divisor.y - 1u);
        rest <<= shift;
        magnitude = rest >= 0x800000u ? ((divisor.y - shift) << 23) | (rest & 0x7fffffu) : rest;
    }
    return uintBitsToFloat(magnitude | (floatBitsToUint(a) & 0x80000000u));
}

// Saturating conversions from floats; NaN gives 0.
int float_to_int(float x) {
    if (is_nan(x)) return 0;
    if (x >= 2147483648.0) return 0x7fffffff;
    return x <= -2147483648.0 ? int(0x80000000u) : int(x);
}
uint float_to_uint(float x, float limit, uint largest) {
    if (is_nan(x) || x <= 0.0) return 0u;
    return x >= limit ? largest : uint(x);
}
