// Sine and cosine of any float, with an absolute error of 2e-7 on every device; Vulkan guarantees its own only within
// ±π. The angle is reduced by multiplying its 24-bit mantissa with the relevant 96 bits of 2/π (Payne and Hanek, 1983)
// in integers, so rounding and fused multiply-add do not matter.
const uint TWO_OVER_PI[8] = uint[8](
    0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);

// Returns 32 bits of 2/π from bit `first` of the table on.
uint two_over_pi_word(uint first) {
    uint word = first >> 5, shift = first & 31u;
    uint high = TWO_OVER_PI[word];
    return shift == 0u ? high : (high << shift) | (TWO_OVER_PI[min(word + 1u, 7u)] >> (32u - shift));
}

// |angle| = quadrant · π/2 + the returned remainder, which is within ±π/4.
float reduce_angle(float angle, out uint quadrant) {
    uint bits = floatBitsToUint(angle) & 0x7fffffffu;
    quadrant = 0u;
    if (bits <= 0x3f490fdau) return uintBitsToFloat(bits);
    if (bits >= 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    uint exponent = bits >> 23;
    uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    // The window starts at the bit of weight 2: higher bits times an integer are whole turns.
    uint first = exponent - 120u;
    uint carry0, low0, carry1, low1;
    umulExtended(mantissa, two_over_pi_word(first + 64u), carry0, low0);
    umulExtended(mantissa, two_over_pi_word(first + 32u), carry1, low1);
    uint carried;
    uint middle = uaddCarry(low1, carry0, carried);
    uint top = mantissa * two_over_pi_word(first) + carry1 + carried;
    // Rounds to the nearest quarter turn; the rest is a signed fraction of 62 bits.
    quadrant = ((top + 0x20000000u) >> 30) & 3u;
    precise float whole = float(int(top << 2 | middle >> 30));
    precise float part = float(middle << 2 | low0 >> 30);
    precise float fraction = whole + part * 2.3283064365386963e-10;
    precise float remainder = fraction * 3.6572952e-10;
    return remainder;
}

// Taylor series. The omitted terms are below 2e-9 within ±π/4.
float sin_near_zero(float x) {
    precise float z = x * x;
    precise float p = x + x * z * (-1.6666667e-1 + z * (8.3333333e-3 + z * (-1.9841270e-4 + z * 2.7557319e-6)));
    return p;
}

float cos_near_zero(float x) {
    precise float z = x * x;
    precise float p = 1.0 - 0.5 * z + z * z * (4.1666667e-2 + z * (-1.3888889e-3 + z * (2.4801587e-5 - z * 2.7557319e-7)));
    return p;
}

// Returns (sin angle, cos angle); NaN for infinite angles.
vec2 sincos(float angle) {
    uint quadrant;
    float x = reduce_angle(angle, quadrant);
    vec2 sc = vec2(sin_near_zero(x), cos_near_zero(x));
    if ((quadrant & 1u) != 0u) sc = vec2(sc.y, -sc.x);
    if ((quadrant & 2u) != 0u) sc = -sc;
    return vec2(angle < 0.0 ? -sc.x : sc.x, sc.y);
}
