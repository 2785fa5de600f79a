// Vectors as the matrix cores take them: x[t], normalised first where there is a norm, as halves, times a power
// of two that keeps its largest value in their range; with HALVES 2 also what those leave, so that nearly all of
// f32's bits are there. A row of invocations takes a vector. Declared elsewhere: the arguments, x and the norm's
// weight, lanes; later: where x[t] begins, and where a half is packed.
DEFINE_COMBINE(max_lanes, max, subgroupMax)

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

// Values k to k + 7 of x[t] with the norm's weight, zeros beyond the last.
void load_eight(uint t, uint k, out vec4 low, out vec4 high) {
    low = vec4(0.0);
    high = vec4(0.0);
    if (k >= COLUMNS) return;
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

void weigh(uint k, inout vec4 low, inout vec4 high) {
#ifdef NORM_WEIGHT
    if (k >= COLUMNS) return;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        low[i] *= load_norm_weight(pc.norm_weight, k + i);
        high[i] *= load_norm_weight(pc.norm_weight, k + 4u + i);
    }
#endif
}

// Packs x[t], zeros where it is not inside, and stores its factor, if it is stored at all. To be called by the
// whole workgroup.
void pack(uint t, bool inside, bool stored) {
    float squares = 0.0;
    float most = 0.0;
    vec4 low, high;
    for (uint k = 8u * lane(); inside && k < COLUMNS; k += 8u * LANES) {
        load_eight(t, k, low, high);
        squares += dot(low, low) + dot(high, high);
        weigh(k, low, high);
        vec4 size = max(abs(low), abs(high));
        most = max(most, max(max(size.x, size.y), max(size.z, size.w)));
    }
    most = max_lanes(most);
    float factor = 1.0;
#ifdef NORM
    factor = 1.0 / sqrt(sum_lanes(squares) / float(COLUMNS) + uintBitsToFloat(EPS));
    most *= factor;
#endif
    // A power of two, so that nothing is rounded by it; by bits, since logarithms are not exact.
    int exponent = int(floatBitsToUint(most) >> 23) - int(floatBitsToUint(LARGEST) >> 23);
    exponent = most > 0.0 && exponent < 128 ? clamp(exponent, -100, 100) : 0;
    factor *= uintBitsToFloat(uint(127 - exponent) << 23);
    if (!stored) return;
    if (lane() == 0u) pc.factors.at[t] = uintBitsToFloat(uint(127 + exponent) << 23);

    for (uint k = 8u * lane(); k < BLOCKS * BLOCK; k += 8u * LANES) {
        low = vec4(0.0);
        high = vec4(0.0);
        if (inside) {
            load_eight(t, k, low, high);
            weigh(k, low, high);
            low *= factor;
            high *= factor;
        }
        [[unroll]] for (uint part = 0u; part < HALVES; ++part) {
            // Value j beside value j + 4: so the pairs of weights come out of their words.
            uint pairs[4];
            [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                uint a = f32_to_f16(low[j]);
                uint b = f32_to_f16(high[j]);
                pairs[j] = a | b << 16;
                // What the first half leaves.
                low[j] -= f16_to_f32(a);
                high[j] -= f16_to_f32(b);
            }
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
