// Vectors as the matrix cores take them: x[t], normalised first where there is a norm, as halves, times a power
// of two that keeps its largest value in their range; with HALVES 2 also what those leave, so that nearly all of
// f32's bits are there. A row of invocations takes a vector, and holds it: HELD runs of eight values each. Declared
// elsewhere: the arguments, x and the norm's weight, lanes; later: where x[t] begins, and where a half is packed.
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

// The largest magnitude that is wanted: sums of products of halves go on in f32.
const float LARGEST = 256.0;

uint x_at(uint t);
uint packed_at(uint part, uint t, uint k);

// Values k to k + 7 of x[t], zeros where there are none.
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

// What a half can hold of values up to LARGEST, whichever way the device rounds to halves.
vec4 halved(vec4 values) {
    precise vec4 raised = values * 8193.0;
    precise vec4 rest = raised - values;
    precise vec4 kept = raised - rest;
    return kept;
}

// Packs x[t], zeros where it is not inside, and stores its factor, if it is stored at all. To be called by the
// whole workgroup.
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
    // A power of two, so that nothing is rounded by it; by bits, since logarithms are not exact.
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
        [[unroll]] for (uint part = 0u; part < HALVES; ++part) {
            vec4 first_kept = halved(first);
            vec4 second_kept = halved(second);
            // Value j beside value j + 4: so the pairs of weights come out of their words.
            uint pairs[4];
            [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                pairs[j] = packFloat2x16(f16vec2(first_kept[j], second_kept[j]));
            }
            // What the first half leaves.
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
