// Maps numbers to unsigned keys of the same order, so that integer maxima compare floats exactly: -0 equals 0, and NaN
// is the largest.
uint order_key(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    if (bits == 0x80000000u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
uint order_key(int x) { return uint(x) ^ 0x80000000u; }
uint order_key(uint x) { return x; }

float float_of_key(uint key) {
    if (key == 0xffffffffu) return uintBitsToFloat(0x7fc00000u);
    return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key);
}
int int_of_key(uint key) { return int(key ^ 0x80000000u); }
uint uint_of_key(uint key) { return key; }
