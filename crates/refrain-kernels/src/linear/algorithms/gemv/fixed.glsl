// Stages x in fixed point, for quantised weights. Each value is two 8-bit digits times the chunk's step, that is, 16
// bits relative to the chunk's largest value. Four products are then one exact instruction. LARGEST keeps the higher
// digit within a byte after rounding.
const float LARGEST = 127.0 * 256.0;
// A pair is eight values: two words of four bytes.
const uint PAIRS = CHUNK / 8u;
// Pairs of a chunk that share a scale.
const uint PAIRS_EACH = PAIRS / TERMS;
const uint LINE = TILE | 1u;

// Offset of the values that bytes_of returns. It is corrected by means of the sum of x.
#ifdef BOOK
const float MIDDLE = 0.0;
#elif BITS < 8
const float MIDDLE = ZERO;
#elif defined ZERO_SIGNED
const float MIDDLE = 0.0;
#else
const float MIDDLE = ZERO - 128.0;
#endif

// x_digits[(t * PAIRS + p) * LINE + c] holds the lower digits of pair p of chunk c, then the higher ones.
shared ivec4 x_digits[VECTORS * PAIRS * LINE];
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

// Expands four consecutive values in the low bits of `bits` to one byte each.
uint spread(uint bits) {
    const uint one = (1u << BITS) - 1u, two = (1u << 2u * BITS) - 1u;
    uint pairs = (bits & two) | (bits << (16u - 2u * BITS) & two << 16);
    return (pairs & one * 0x00010001u) | (pairs << (8u - BITS) & one * 0x01000100u);
}

// Returns the weights of a pair as signed bytes. For 4-bit values, the first word has every second value, as in memory.
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

// Added to a number within ±LARGEST, it leaves the nearest integer in the lower 16 bits, with 128 added to each digit.
const float ROUNDER = 12582912.0 + 128.0 * 257.0;

// Returns the lower digits of four rounded values as bytes, then the higher ones.
ivec2 digits_of(uvec4 rounded) {
    uint even = (rounded.x & 0xffffu) | rounded.z << 16;
    uint odd = (rounded.y & 0xffffu) | rounded.w << 16;
    uint lower = (even & 0x00ff00ffu) | (odd & 0x00ff00ffu) << 8;
    uint higher = (even >> 8 & 0x00ff00ffu) | (odd & 0xff00ff00u);
    return ivec2(lower ^ 0x80808080u, higher ^ 0x80808080u);
}

// Returns the largest of four magnitudes as bits. Without signs, bits have the order of floats, and NaN is the largest.
uint largest_bits(vec4 quad) {
    uvec4 bits = floatBitsToUint(abs(quad));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Passes in which the invocations stage a tile's pairs.
const uint TURNS = (PAIRS * TILE + ROWS * LANES - 1u) / (ROWS * LANES);

// Stages pair `e` of the tile of x[t] whose first chunk is `first`, given its values. Consecutive invocations have the
// pairs of a chunk, and all take part.
void stage_pair(uint t, uint first, uint e, bool is_inside, vec4 low, vec4 high) {
#ifdef NORM
    uint k = first * CHUNK + 8u * e;
    if (is_inside) squares[t] += dot(low, low) + dot(high, high);
    low = with_norm_weight(low, k);
    high = with_norm_weight(high, k + 4u);
#endif
    uint bits = max(largest_bits(low), largest_bits(high));
    [[unroll]] for (uint apart = 1u; apart < PAIRS; apart *= 2u) bits = max(bits, subgroupShuffleXor(bits, apart));
    float most = uintBitsToFloat(bits);
    // For smaller values LARGEST / most would be infinite.
    bool is_zero = most < 1e-31;
    float scale = is_zero ? 0.0 : LARGEST / most;
    float step = is_zero ? 0.0 : most / LARGEST;
    precise vec4 a = fma(low, vec4(scale), vec4(ROUNDER));
    precise vec4 b = fma(high, vec4(scale), vec4(ROUNDER));
    // Sum of the rounded values that share this pair's scale. It is exact if ROUNDER is subtracted from each.
    precise vec4 low_rounded = a - ROUNDER;
    precise vec4 high_rounded = b - ROUNDER;
    precise vec4 both = low_rounded + high_rounded;
    precise float sum = (both.x + both.y) + (both.z + both.w);
    [[unroll]] for (uint apart = 1u; apart < PAIRS_EACH; apart *= 2u) sum += subgroupShuffleXor(sum, apart);
    if (!is_inside) return;
    uint c = e / PAIRS;
    if (e % PAIRS == 0u) x_steps[t * LINE + c] = step;
    if (e % PAIRS_EACH == 0u) x_sums[(t * TERMS + e % PAIRS / PAIRS_EACH) * LINE + c] = sum * step;
    uvec4 first_bits = floatBitsToUint(a), second_bits = floatBitsToUint(b);
#if BITS == 4
    ivec2 firsts = digits_of(uvec4(first_bits.xz, second_bits.xz));
    ivec2 seconds = digits_of(uvec4(first_bits.yw, second_bits.yw));
#else
    ivec2 firsts = digits_of(first_bits);
    ivec2 seconds = digits_of(second_bits);
#endif
    x_digits[(t * PAIRS + e % PAIRS) * LINE + c] = ivec4(firsts.x, seconds.x, firsts.y, seconds.y);
}

// The first pair of the tile that this invocation stages.
uint own_pair() { return gl_SubgroupID * FULL_SUBGROUPS + gl_SubgroupInvocationID; }

#ifdef ONE_VECTOR
void stage_vectors(uint first) {
    uint own = own_pair();
    vec4 low[TURNS], high[TURNS];
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint k = first * CHUNK + 8u * (own + turn * ROWS * LANES);
        low[turn] = load_quad(0u, k);
        high[turn] = load_quad(0u, k + 4u);
    }
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = own + turn * ROWS * LANES;
        stage_pair(0u, first, e, e < PAIRS * TILE, low[turn], high[turn]);
    }
}
#else
// Vectors whose loads are issued together: a load takes longer than staging what it brings. With one vector this text
// makes small products 5 % slower on an H200, although it then says the same as the one above.
const uint MAX_TOGETHER = TURNS > 4u ? 1u : 4u / TURNS;
const uint TOGETHER = VECTORS < MAX_TOGETHER ? VECTORS : MAX_TOGETHER;

void stage_vectors(uint first) {
    uint own = own_pair();
    UNROLL for (uint from = 0u; from < VECTORS; from += TOGETHER) {
        vec4 low[TOGETHER * TURNS], high[TOGETHER * TURNS];
        [[unroll]] for (uint i = 0u; i < TOGETHER * TURNS; ++i) {
            uint k = first * CHUNK + 8u * (own + i % TURNS * ROWS * LANES);
            uint t = min(from + i / TURNS, VECTORS - 1u);
            low[i] = load_quad(t, k);
            high[i] = load_quad(t, k + 4u);
        }
        [[unroll]] for (uint i = 0u; i < TOGETHER * TURNS; ++i) {
            uint t = from + i / TURNS;
            uint e = own + i % TURNS * ROWS * LANES;
            stage_pair(t, first, e, e < PAIRS * TILE && t < VECTORS, low[i], high[i]);
        }
    }
}
#endif

// Stages the tile of x whose first chunk is `first` in shared memory.
void stage(uint first) {
    barrier();
    stage_vectors(first);
    barrier();
}

// Multiplies chunk `c` of the tile with each row's chunk and accumulates.
void add_chunks(uint c, Chunk chunks[MATRICES]) {
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
        ivec4 digits[PAIRS];
        [[unroll]] for (uint p = 0u; p < PAIRS; ++p) digits[p] = x_digits[(t * PAIRS + p) * LINE + c];
        float step = x_steps[t * LINE + c];
        float totals[TERMS];
        [[unroll]] for (uint term = 0u; term < TERMS; ++term) totals[term] = x_sums[(t * TERMS + term) * LINE + c];
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            [[unroll]] for (uint term = 0u; term < TERMS; ++term) {
                int lower = 0, higher = 0;
                [[unroll]] for (uint p = term * PAIRS_EACH; p < (term + 1u) * PAIRS_EACH; ++p) {
                    ivec2 bytes = bytes_of(chunks[m], p);
                    lower += dot_bytes(bytes.x, digits[p].x) + dot_bytes(bytes.y, digits[p].y);
                    higher += dot_bytes(bytes.x, digits[p].z) + dot_bytes(bytes.y, digits[p].w);
                }
                float product = float(higher * 256 + lower);
                sums[m][t] += chunk_sum(chunks[m], term, product * step - MIDDLE * totals[term], totals[term]);
            }
        }
    }
}
