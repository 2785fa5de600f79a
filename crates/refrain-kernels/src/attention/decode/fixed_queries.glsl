// Scores of keys in blocks, by instructions that multiply four bytes at once. An invocation's values of a query are two
// 8-bit digits times a step of its own, that is, 16 bits relative to the largest of them.

// LARGEST keeps the higher digit within a byte after rounding.
const float LARGEST = 127.0 * 256.0;

// Higher digits, then lower ones, in the order of the cache's bytes.
ivec4 query_digits[HEADS];
float query_steps[HEADS];

float query_value(uint h, uint i) { return queries[h * PAIRS + i / 2u][i % 2u]; }

// Brings the queries into fixed point.
void fix_queries() {
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float largest = 0.0;
        [[unroll]] for (uint i = 0u; i < UNIT; ++i) largest = max(largest, abs(query_value(h, i)));
        float step = largest / LARGEST;
        float per_step = largest > 0.0 ? 1.0 / step : 0.0;
        [[unroll]] for (uint w = 0u; w < 2u; ++w) {
            uint high = 0u, low = 0u;
            [[unroll]] for (uint b = 0u; b < 4u; ++b) {
                int number = int(roundEven(query_value(h, cache_byte_value(w, b)) * per_step));
                int high_digit = (number + 128) >> 8;
                high |= (uint(high_digit) & 0xffu) << 8u * b;
                low |= (uint(number) & 0xffu) << 8u * b;
            }
            query_digits[h][w] = int(high);
            query_digits[h][2u + w] = int(low);
        }
        query_steps[h] = step / CACHE_BYTE_STEP;
    }
}

void score() {
    UNROLL for (uint step = 0u; step < STEPS; ++step) {
        ivec2 bytes = cache_bytes(keys[step]);
        float scale = UNIT_SCALE(keys[step]);
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
            ivec4 digits = query_digits[h];
            int high = dotPacked4x8EXT(digits.x, bytes.x) + dotPacked4x8EXT(digits.y, bytes.y);
            int low = dotPacked4x8EXT(digits.z, bytes.x) + dotPacked4x8EXT(digits.w, bytes.y);
            scores[step * HEADS + h] = float((high << 8) + low) * query_steps[h] * scale;
        }
    }
}
