// x in fixed point, for quantised weights: of each chunk's values DIGITS digits of 8 bits, times the
// chunk's step. Four products are then one instruction and exact, and three digits are as fine as the 24
// bits of f32.
const uint DIGITS = 3u;
// The highest digit stays within a byte, however it is rounded.
const float LARGEST = 127.0 * 65536.0;
// Eight values are a pair: two words of four bytes.
const uint PAIRS = CHUNK / 8u;
// Of the pairs of a chunk, those that share a scale.
const uint PAIRS_EACH = PAIRS / TERMS;
const uint LINE = TILE | 1u;

// What bytes_of leaves out of each value, which is then added for the sum of x.
#ifdef BOOK
const float MIDDLE = 0.0;
#elif BITS < 8
const float MIDDLE = ZERO;
#elif defined ZERO_SIGNED
const float MIDDLE = 0.0;
#else
const float MIDDLE = ZERO - 128.0;
#endif

// Digits of pair p of chunk c: x_digits[((t * DIGITS + digit) * PAIRS + p) * LINE + c].
shared ivec2 x_digits[VECTORS * DIGITS * PAIRS * LINE];
shared float x_steps[VECTORS * LINE];
// The sum of x over each scale's values.
shared float x_sums[VECTORS * TERMS * LINE];

#ifdef INTEGER_DOT
int dot_bytes(int a, int b) { return dotPacked4x8EXT(a, b); }
#else
int dot_bytes(int a, int b) {
    int sum = 0;
    [[unroll]] for (int i = 0; i < 32; i += 8) sum += ((a << i) >> 24) * ((b << i) >> 24);
    return sum;
}
#endif

// Four neighbouring values in the low bits of `bits`, a byte each.
uint spread(uint bits) {
    const uint one = (1u << BITS) - 1u, two = (1u << 2u * BITS) - 1u;
    uint pairs = (bits & two) | (bits << (16u - 2u * BITS) & two << 16);
    return (pairs & one * 0x00010001u) | (pairs << (8u - BITS) & one * 0x01000100u);
}

// The weights of a pair as signed bytes: of 4-bit values every second one is in the first word, as it lies
// in memory.
ivec2 bytes_of(Chunk chunk, uint pair) {
#ifdef BOOK
    uint word = chunk.words[pair];
    uvec2 bytes = uvec2(book_bytes(word & 0x0f0f0f0fu), book_bytes((word >> 4) & 0x0f0f0f0fu));
    return ivec2(bytes ^ 0x80808080u);
#elif BITS == 4
    uint word = chunk.words[pair];
    return ivec2(word & 0x0f0f0f0fu, (word >> 4) & 0x0f0f0f0fu);
#elif BITS == 8
    uvec2 words = uvec2(chunk.words[2u * pair], chunk.words[2u * pair + 1u]);
#ifndef ZERO_SIGNED
    words ^= 0x80808080u;
#endif
    return ivec2(words);
#else
    return ivec2(spread(quad_bits(chunk, 2u * pair)), spread(quad_bits(chunk, 2u * pair + 1u)));
#endif
}

// Added to a number within ±2^15 it leaves the nearest integer, 128 more, in the lower half of the bits.
const float ROUNDER = 12582912.0 + 128.0;

// A byte of the lowest digit of each of four values, then the middle ones, then the highest.
ivec3 digits_of(vec4 values) {
    precise vec4 rounded = values * (1.0 / 256.0) + ROUNDER;
    precise vec4 rest = min(values - 256.0 * (rounded - ROUNDER), 127.0) + ROUNDER;
    uvec4 low = floatBitsToUint(rest) & 255u;
    uvec4 bits = floatBitsToUint(rounded);
    // Each holds two of the values' upper digits.
    uint even = (bits.x & 0xffffu) | bits.z << 16;
    uint odd = (bits.y & 0xffffu) | bits.w << 16;
    uint lowest = low.x | low.y << 8 | low.z << 16 | low.w << 24;
    uint middle = (even & 0x00ff00ffu) | (odd & 0x00ff00ffu) << 8;
    uint highest = (even >> 8 & 0x00ff00ffu) | (odd & 0xff00ff00u);
    return ivec3(lowest ^ 0x80808080u, middle ^ 0x80808080u, highest);
}

// Turns in which the invocations take a tile's pairs.
const uint TURNS = (PAIRS * TILE + ROWS * LANES - 1u) / (ROWS * LANES);

// Puts the tile of x[t] whose first chunk is `first` into shared memory.
void stage_vector(uint t, uint first) {
    vec4 low[TURNS], high[TURNS];
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint k = first * CHUNK + 8u * (gl_LocalInvocationIndex + turn * ROWS * LANES);
        low[turn] = load_quad(t, k);
        high[turn] = load_quad(t, k + 4u);
    }
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * ROWS * LANES;
        if (e >= PAIRS * TILE) break;
#ifdef NORM
        uint k = first * CHUNK + 8u * e;
        squares[t] += dot(low[turn], low[turn]) + dot(high[turn], high[turn]);
        low[turn] = with_norm_weight(low[turn], k);
        high[turn] = with_norm_weight(high[turn], k + 4u);
#endif
        vec4 size = max(abs(low[turn]), abs(high[turn]));
        float most = max(max(size.x, size.y), max(size.z, size.w));
        // For a moment, in the place of digits.
        x_digits[(t * DIGITS * PAIRS + e % PAIRS) * LINE + e / PAIRS] =
            floatBitsToInt(vec2(most, dot(low[turn] + high[turn], vec4(1.0))));
    }
    barrier();
    // Of the chunk, and of the values that share this pair's scale.
    float most[TURNS], sum[TURNS];
    bool is_number[TURNS];
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * ROWS * LANES;
        uint c = min(e / PAIRS, TILE - 1u);
        most[turn] = 0.0;
        sum[turn] = 0.0;
        float all = 0.0;
        [[unroll]] for (uint p = 0u; p < PAIRS; ++p) {
            vec2 part = intBitsToFloat(x_digits[(t * DIGITS * PAIRS + p) * LINE + c]);
            most[turn] = max(most[turn], part.x);
            all += part.y;
            if (p / PAIRS_EACH == e % PAIRS / PAIRS_EACH) sum[turn] += part.y;
        }
        is_number[turn] = !is_nan(all);
    }
    barrier();
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * ROWS * LANES;
        if (e >= PAIRS * TILE) break;
        uint c = e / PAIRS;
        // Below, LARGEST / most would be infinite.
        bool is_zero = most[turn] < 1e-31;
        float scale = is_zero ? 0.0 : LARGEST / most[turn];
        float step = is_zero ? 0.0 : most[turn] / LARGEST;
        // What is no number stays none.
        if (!is_number[turn]) step = uintBitsToFloat(0x7fc00000u);
        if (e % PAIRS == 0u) x_steps[t * LINE + c] = step;
        if (e % PAIRS_EACH == 0u) x_sums[(t * TERMS + e % PAIRS / PAIRS_EACH) * LINE + c] = sum[turn];
        vec4 a = low[turn] * scale;
        vec4 b = high[turn] * scale;
#if BITS == 4
        ivec3 firsts = digits_of(vec4(a.xz, b.xz));
        ivec3 seconds = digits_of(vec4(a.yw, b.yw));
#else
        ivec3 firsts = digits_of(a);
        ivec3 seconds = digits_of(b);
#endif
        [[unroll]] for (uint digit = 0u; digit < DIGITS; ++digit) {
            x_digits[((t * DIGITS + digit) * PAIRS + e % PAIRS) * LINE + c] = ivec2(firsts[digit], seconds[digit]);
        }
    }
}

void stage(uint first) {
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) stage_vector(t, first);
    barrier();
}

// Adds the products of chunk `c` of the tile with each of the rows' chunks.
void add_chunks(uint c, Chunk chunks[MATRICES]) {
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
        ivec2 digits[DIGITS * PAIRS];
        [[unroll]] for (uint i = 0u; i < DIGITS * PAIRS; ++i) {
            digits[i] = x_digits[(t * DIGITS * PAIRS + i) * LINE + c];
        }
        float step = x_steps[t * LINE + c];
        float totals[TERMS];
        [[unroll]] for (uint term = 0u; term < TERMS; ++term) totals[term] = x_sums[(t * TERMS + term) * LINE + c];
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            [[unroll]] for (uint term = 0u; term < TERMS; ++term) {
                int products[DIGITS];
                [[unroll]] for (uint digit = 0u; digit < DIGITS; ++digit) {
                    products[digit] = 0;
                    [[unroll]] for (uint p = term * PAIRS_EACH; p < (term + 1u) * PAIRS_EACH; ++p) {
                        ivec2 bytes = bytes_of(chunks[m], p);
                        ivec2 own = digits[digit * PAIRS + p];
                        products[digit] += dot_bytes(bytes.x, own.x) + dot_bytes(bytes.y, own.y);
                    }
                }
                float product = fma(float(products[2] * 256 + products[1]), 256.0, float(products[0]));
                sums[m][t] += chunk_sum(chunks[m], term, product * step - MIDDLE * totals[term], totals[term]);
            }
        }
    }
}
