// Packs vectors of x as f16 for the matrix cores. x[t] is normalised if there is a norm, and scaled by a power of two
// that keeps its largest value in range. With X_TERMS 2 a second f16 term holds the rounding errors of the first, so
// that nearly all bits of f32 are kept. A row of invocations holds a vector in registers: HELD runs of eight values
// each. The text before this one declares the arguments, x, the norm's weight and lanes. Later text defines x_at and
// packed_at.
#define JOIN_BOTH(a, b) vec2(max((a).x, (b).x), (a).y + (b).y)
#define SUBGROUP_BOTH(value) vec2(subgroupMax((value).x), subgroupAdd((value).y))
DEFINE_COMBINE(both_lanes, JOIN_BOTH, SUBGROUP_BOTH)

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer factors_ref { float at[]; };
#if VALUES == 1
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer packed_ref { uint16_t at[]; };
const uint VALUES_STORED = 1u;
#else
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer packed_ref { uvec2 at[]; };
const uint VALUES_STORED = 4u;
#endif

// Upper bound of scaled magnitudes. Accumulation is in f32, so there is room for more.
const float LARGEST = 256.0;

uint x_at(uint t);
uint packed_at(uint part, uint t, uint k);

// Loads values k to k + 7 of x[t], with zeros beyond the end.
void load_eight(uint t, uint k, bool inside, out vec4 low, out vec4 high) {
    low = vec4(0.0);
    high = vec4(0.0);
    if (!inside || k >= COLUMNS) return;
    uint at = x_at(t) + k * X_WITHIN;
#ifdef X_WIDE
    load8_x(pc.x, at, low, high);
#else
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        low[i] = load_x(pc.x, at + i * X_WITHIN);
        high[i] = load_x(pc.x, at + (4u + i) * X_WITHIN);
    }
#endif
}

#ifdef NORM_WEIGHT
void load_norm_weights(uint k, out vec4 low, out vec4 high) {
    low = vec4(0.0);
    high = vec4(0.0);
    if (k >= COLUMNS) return;
#ifdef NORM_WEIGHT_WIDE
    load4_norm_weight(pc.norm_weight, k, low);
    load4_norm_weight(pc.norm_weight, k + 4u, high);
#else
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        low[i] = load_norm_weight(pc.norm_weight, k + i);
        high[i] = load_norm_weight(pc.norm_weight, k + 4u + i);
    }
#endif
}
#endif

// Rounds values up to LARGEST to f16, however the device's own conversion rounds.
vec4 halved(vec4 values) {
    precise vec4 raised = values * 8193.0;
    precise vec4 rest = raised - values;
    precise vec4 kept = raised - rest;
    return kept;
}

// Packs x[t] (zeros if not `inside`) and stores its factor, unless `stored` is false. The whole workgroup must call it.
void pack(uint t, bool inside, bool stored) {
    vec4 low[HELD];
    vec4 high[HELD];
#ifdef NORM_WEIGHT
    vec4 low_weights[HELD];
    vec4 high_weights[HELD];
#endif
    [[unroll]] for (uint i = 0u; i < HELD; ++i) {
        uint k = 8u * (i * LANES + lane());
        load_eight(t, k, inside, low[i], high[i]);
#ifdef NORM_WEIGHT
        load_norm_weights(k, low_weights[i], high_weights[i]);
#endif
    }
    // The largest magnitude, and the sum of squares.
    vec2 found = vec2(0.0);
    [[unroll]] for (uint i = 0u; i < HELD; ++i) {
        found.y += dot(low[i], low[i]) + dot(high[i], high[i]);
#ifdef NORM_WEIGHT
        low[i] *= low_weights[i];
        high[i] *= high_weights[i];
#endif
        vec4 size = max(abs(low[i]), abs(high[i]));
        found.x = max(found.x, max(max(size.x, size.y), max(size.z, size.w)));
    }
    found = both_lanes(found);
    float factor = 1.0;
#ifdef NORM
    factor = 1.0 / sqrt(found.y / float(COLUMNS) + uintBitsToFloat(EPS));
    found.x *= factor;
#endif
    // The factor is a power of two, which is exact. It is computed from the bits, since logarithms are not exact.
    int exponent = int(floatBitsToUint(found.x) >> 23) - int(floatBitsToUint(LARGEST) >> 23);
    exponent = found.x > 0.0 && exponent < 128 ? clamp(exponent, -100, 100) : 0;
    factor *= uintBitsToFloat(uint(127 - exponent) << 23);
    if (!stored) return;
    if (lane() == 0u) pc.factors.at[t] = uintBitsToFloat(uint(127 + exponent) << 23);

    [[unroll]] for (uint i = 0u; i < HELD; ++i) {
        uint k = 8u * (i * LANES + lane());
        if (k >= BLOCKS * BLOCK) return;
        vec4 first = low[i] * factor;
        vec4 second = high[i] * factor;
        [[unroll]] for (uint part = 0u; part < X_TERMS; ++part) {
            vec4 first_kept = halved(first);
            vec4 second_kept = halved(second);
            // Value j is paired with value j + 4, as pairs of weights come out of their words.
            uint pairs[4];
            [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                pairs[j] = packFloat2x16(f16vec2(first_kept[j], second_kept[j]));
            }
            // The rounding errors are the next term.
            first -= first_kept;
            second -= second_kept;
            [[unroll]] for (uint j = 0u; j < 8u; j += VALUES_STORED) {
                uint at = packed_at(part, t, k + j);
#if VALUES == 1
                pc.packed.at[at] = uint16_t(pairs[j / 2u] >> (16u * (j % 2u)));
#else
                pc.packed.at[at / 4u] = uvec2(pairs[j / 2u], pairs[j / 2u + 1u]);
#endif
            }
        }
    }
}
