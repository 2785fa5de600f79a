// x in fixed point, for weights of 4 or 8 bits: of each chunk's values DIGITS digits of 8 bits, times the
// chunk's step. Four products are then one instruction and exact, and three digits are as fine as the 24
// bits of f32.
const uint DIGITS = 3u;
// The highest digit stays within a byte, however it is rounded.
const float LARGEST = 127.0 * 65536.0;
// Eight values are a pair: two words of four bytes.
const uint PAIRS = CHUNK / 8u;
const uint LINE = TILE | 1u;

// What bytes_of leaves out of each value, which is then added for the sum of x.
#if BITS == 4
const float MIDDLE = ZERO;
#elif defined ZERO_SIGNED
const float MIDDLE = 0.0;
#else
const float MIDDLE = ZERO - 128.0;
#endif

// Digits of pair p of chunk c: x_digits[((t * DIGITS + digit) * PAIRS + p) * LINE + c].
shared ivec2 x_digits[VECTORS * DIGITS * PAIRS * LINE];
// Of each chunk, the step and the sum.
shared vec2 x_steps[VECTORS * LINE];

#ifdef INTEGER_DOT
int dot_bytes(int a, int b) { return dotPacked4x8EXT(a, b); }
#else
int dot_bytes(int a, int b) {
    int sum = 0;
    [[unroll]] for (int i = 0; i < 32; i += 8) sum += ((a << i) >> 24) * ((b << i) >> 24);
    return sum;
}
#endif

// The weights of a pair as signed bytes: of 4-bit values every second one is in the first word, as it lies
// in memory.
ivec2 bytes_of(Chunk chunk, uint pair) {
#if BITS == 4
    uint word = chunk.words[pair];
    return ivec2(word & 0x0f0f0f0fu, (word >> 4) & 0x0f0f0f0fu);
#else
    uvec2 words = uvec2(chunk.words[2u * pair], chunk.words[2u * pair + 1u]);
#ifndef ZERO_SIGNED
    words ^= 0x80808080u;
#endif
    return ivec2(words);
#endif
}

// The lowest digit of each value, which is left without it.
int take_digit(inout ivec4 values) {
    ivec4 digit = (values << 24) >> 24;
    values = (values - digit) >> 8;
    ivec4 bytes = (digit & 255) << ivec4(0, 8, 16, 24);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

// Puts the tile of x whose first chunk is `first` into shared memory, a pair by each invocation.
void stage(uint first) {
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        for (uint base = 0u; base < PAIRS * TILE; base += ROWS * LANES) {
            uint e = base + gl_LocalInvocationIndex;
            uint c = e / PAIRS;
            uint own = (t * DIGITS * PAIRS + e % PAIRS) * LINE + c;
            vec4 low = vec4(0.0), high = vec4(0.0);
            if (c < TILE) {
                uint k = first * CHUNK + 8u * e;
                low = load_quad(t, k);
                high = load_quad(t, k + 4u);
#ifdef NORM
                squares[t] += dot(low, low) + dot(high, high);
                low = with_gain(low, k);
                high = with_gain(high, k + 4u);
#endif
                vec4 size = max(abs(low), abs(high));
                float most = max(max(size.x, size.y), max(size.z, size.w));
                // For a moment, in the place of digits.
                x_digits[own] = floatBitsToInt(vec2(most, dot(low + high, vec4(1.0))));
            }
            barrier();
            float most = 0.0;
            float sum = 0.0;
            if (c < TILE) {
                [[unroll]] for (uint p = 0u; p < PAIRS; ++p) {
                    vec2 part = intBitsToFloat(x_digits[(t * DIGITS * PAIRS + p) * LINE + c]);
                    most = max(most, part.x);
                    sum += part.y;
                }
            }
            barrier();
            if (c < TILE) {
                // Below, LARGEST / most would be infinite.
                bool is_zero = most < 1e-31;
                float scale = is_zero ? 0.0 : LARGEST / most;
                // What is no number stays none.
                float step = isnan(sum) ? sum : (is_zero ? 0.0 : most / LARGEST);
                if (e % PAIRS == 0u) x_steps[t * LINE + c] = vec2(step, sum);
                low = round(low * scale);
                high = round(high * scale);
#if BITS == 4
                ivec4 firsts = ivec4(vec4(low.xz, high.xz));
                ivec4 seconds = ivec4(vec4(low.yw, high.yw));
#else
                ivec4 firsts = ivec4(low);
                ivec4 seconds = ivec4(high);
#endif
                [[unroll]] for (uint digit = 0u; digit < DIGITS; ++digit) {
                    x_digits[own + digit * PAIRS * LINE] = ivec2(take_digit(firsts), take_digit(seconds));
                }
            }
        }
    }
    barrier();
}

// Adds the products of chunk `c` of the tile with each of the rows' chunks.
void add_chunks(uint c, Chunk chunks[MATRICES]) {
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
        ivec2 digits[DIGITS * PAIRS];
        [[unroll]] for (uint i = 0u; i < DIGITS * PAIRS; ++i) {
            digits[i] = x_digits[(t * DIGITS * PAIRS + i) * LINE + c];
        }
        vec2 x = x_steps[t * LINE + c];
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            float product = 0.0;
            [[unroll]] for (uint digit = DIGITS; digit > 0u; --digit) {
                int sum = 0;
                [[unroll]] for (uint p = 0u; p < PAIRS; ++p) {
                    ivec2 bytes = bytes_of(chunks[m], p);
                    ivec2 own = digits[(digit - 1u) * PAIRS + p];
                    sum += dot_bytes(bytes.x, own.x) + dot_bytes(bytes.y, own.y);
                }
                product = fma(product, 256.0, float(sum));
            }
            sums[m][t] += chunk_sum(chunks[m], 0u, product * x.x - MIDDLE * x.y, x.y);
        }
    }
}
