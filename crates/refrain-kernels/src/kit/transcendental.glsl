// exp, log and pow from additions, multiplications and divisions only, so that they are equally accurate on every
// device. The relative error is about 2e-7 unless noted. tanh, erf and sigmoid are within 1e-6 where they are not
// saturated.

// Returns 2^n · x for n in [-252, 252], in two steps so that neither factor overflows or becomes subnormal.
float scale_by_power(float x, int n) {
    int half_n = n / 2;
    return x * uintBitsToFloat(uint(half_n + 127) << 23) * uintBitsToFloat(uint(n - half_n + 127) << 23);
}

// Taylor series of degree 7 on ±ln2/2. The omitted terms are below 6e-9.
float exp_of(float x) {
    if (is_nan(x)) return x;
    precise float clamped = clamp(x, -110.0, 100.0);
    float n = roundEven(clamped * 1.44269504);
    // ln 2 = 0.693359375 - 2.12194440e-4; the first is exact in 9 bits.
    precise float r = (clamped - n * 0.693359375) + n * 2.12194440e-4;
    precise float p = 1.0 + r * (1.0 + r * (0.5 + r * (1.6666667e-1 + r * (4.1666667e-2 + r * (8.3333333e-3
        + r * (1.3888889e-3 + r * 1.9841270e-4))))));
    return scale_by_power(p, int(n));
}

// log(2^e · m) with m in [√½, √2): log m = 2·artanh((m-1)/(m+1)) as a series.
float log_of(float x) {
    uint bits = floatBitsToUint(x);
    if (is_nan(x) || bits == 0x7f800000u) return x;
    if ((bits & 0x7fffffffu) == 0u) return uintBitsToFloat(0xff800000u);
    if (bits >= 0x80000000u) return uintBitsToFloat(0x7fc00000u);
    int exponent = int(bits >> 23) - 127;
    uint mantissa = bits & 0x7fffffu;
    if (bits < 0x800000u) {
        int shift = 23 - findMSB(mantissa);
        mantissa = (mantissa << uint(shift)) & 0x7fffffu;
        exponent = -126 - shift;
    }
    bool upper = mantissa >= 0x3504f3u;
    float m = uintBitsToFloat(mantissa | (upper ? 0x3f000000u : 0x3f800000u));
    float e = float(exponent + (upper ? 1 : 0));
    precise float f = m - 1.0;
    precise float s = f / (2.0 + f);
    precise float z = s * s;
    precise float tail = s * z * (6.6666667e-1 + z * (4.0e-1 + z * (2.8571429e-1 + z * 2.2222222e-1)));
    precise float sum = e * 0.693359375 + (2.0 * s + (tail - e * 2.12194440e-4));
    return sum;
}

// Uses the device's exp2: an error of about 1e-7·(1 + |x|) plus the device's own. Many products end with a sigmoid or
// the like; forty instructions per result would be a tenth of a short product.
float device_exp(float x) { return exp2(x * 1.44269504); }

// A series near zero, 1 - 2/(e^2x + 1) elsewhere.
float tanh_of(float x) {
    if (is_nan(x)) return x;
    float a = min(abs(x), 10.0);
    precise float z = a * a;
    precise float near = a + a * z * (-3.3333333e-1 + z * (1.3333333e-1 + z * (-5.3968254e-2 + z * 2.1869489e-2)));
    precise float far = 1.0 - 2.0 / (device_exp(2.0 * a) + 1.0);
    float t = a < 0.3 ? near : far;
    return x < 0.0 ? -t : t;
}

// Maclaurin series (Abramowitz and Stegun 7.1.5) below 1; above, the rational approximation 7.1.26 with an absolute
// error of 1.5e-7.
float erf_of(float x) {
    if (is_nan(x)) return x;
    float a = min(abs(x), 6.0);
    precise float z = a * a;
    float value;
    if (a < 1.0) {
        precise float series = 1.0 + z * (-3.3333333e-1 + z * (1.0e-1 + z * (-2.3809524e-2 + z * (4.6296296e-3
            + z * (-7.5757576e-4 + z * (1.0683761e-4 + z * (-1.3227513e-5 + z * (1.4589169e-6 - z * 1.4503852e-7))))))));
        precise float near = 1.1283792 * a * series;
        value = near;
    } else {
        precise float t = 1.0 / (1.0 + 0.3275911 * a);
        precise float far = 1.0 - t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
            + t * (-1.453152027 + t * 1.061405429)))) * device_exp(-z);
        value = far;
    }
    return x < 0.0 ? -value : value;
}

float sigmoid_of(float x) {
    precise float s = 1.0 / (1.0 + device_exp(-x));
    return s;
}

// |x|^y as exp(y·log|x|): relative error 2e-7·(1 + |y·log x|). A negative x needs an integral y.
float pow_of(float x, float y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return uintBitsToFloat(0x7fc00000u);
    bool integral = floor(y) == y;
    // Floats from 2^24 on are even.
    bool odd = integral && abs(y) < 16777216.0 && (int(y) & 1) != 0;
    bool negative = floatBitsToUint(x) >= 0x80000000u;
    float magnitude = abs(x);
    if (negative && magnitude != 0.0 && !integral && !is_infinite(x)) return uintBitsToFloat(0x7fc00000u);
    // Clamped, since an infinite exponent times log 1 = 0 would be NaN.
    float bounded = clamp(y, -3.0e38, 3.0e38);
    precise float exponent = bounded * log_of(magnitude);
    float power = exp_of(exponent);
    return negative && odd ? -power : power;
}
