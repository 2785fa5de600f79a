// Masses are sums of weights as 64-bit integers in units of 2^-40, lower word first. Integer sums do not depend on the
// order of addition.
uvec2 add_mass(uvec2 a, uvec2 b) {
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 subtract_mass(uvec2 a, uvec2 b) {
    uint borrow;
    uint low = usubBorrow(a.x, b.x, borrow);
    return uvec2(low, a.y - b.y - borrow);
}

bool is_less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
uvec2 min_mass(uvec2 a, uvec2 b) { return is_less(a, b) ? a : b; }
uvec2 max_mass(uvec2 a, uvec2 b) { return is_less(a, b) ? b : a; }

// Converts a weight from 0 to 2^20.
uvec2 mass_of(float weight) {
    uint bits = floatBitsToUint(weight);
    uint exponent = bits >> 23;
    uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    // weight = mantissa * 2^(exponent - 150)
    if (exponent < 87u) return uvec2(0u);
    if (exponent <= 110u) return uvec2(mantissa >> (110u - exponent), 0u);
    uint shift = exponent - 110u;
    return shift < 32u ? uvec2(mantissa << shift, mantissa >> (32u - shift)) : uvec2(0u, mantissa << (shift - 32u));
}

float weight_of_mass(uvec2 mass) { return (float(mass.y) * 4294967296.0 + float(mass.x)) * 9.094947e-13; }

// Returns total * numerator / 2^24, rounded down; numerator <= 2^24.
uvec2 share_of(uvec2 total, uint numerator) {
    uint middle, low, high, upper;
    umulExtended(total.x, numerator, middle, low);
    umulExtended(total.y, numerator, high, upper);
    uint carry;
    middle = uaddCarry(middle, upper, carry);
    high += carry;
    return uvec2(low >> 24 | middle << 8, middle >> 24 | high << 8);
}
