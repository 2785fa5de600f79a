// Few tokens: a row of invocations takes EACH rows of w and sums over k for all tokens at once.
// Neighbouring invocations take neighbouring words, so that what they need of x lies together too; an
// invocation loads LOADS words of each row before it computes.
layout(constant_id = 5) const uint VECTORS = 1;
layout(constant_id = 6) const uint LOADS = 2;
layout(constant_id = 7) const uint EACH = 1;

float sums[EACH][VECTORS];

// Adds the products of one word of each row, whose first value is value `k` of the row.
void add_words(uint k, uint words[EACH], float scales[EACH], float biases[EACH]) {
    vec4 low[EACH];
#if BITS == 4
    vec4 high[EACH];
#endif
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        low[r] = quants(words[r], 0u);
#if BITS == 4
        high[r] = quants(words[r], 4u);
#endif
    }
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
        uint at = min(t, pc.tokens - 1u) * pc.x_stride + k;
        vec4 x;
#if BITS == 4
        vec4 y;
        load8_x(pc.x, at, x, y);
        float total = dot(x + y, vec4(1.0));
#else
        load4_x(pc.x, at, x);
        float total = dot(x, vec4(1.0));
#endif
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            float product = dot(x, low[r]);
#if BITS == 4
            product += dot(y, high[r]);
#endif
            sums[r][t] += scales[r] * product;
#ifdef ZERO_BIAS
            sums[r][t] += biases[r] * total;
#endif
        }
    }
}

void accumulate(uint row) {
    uint words_per_row = pc.k / PER_WORD;
    uint groups_per_row = pc.k / GROUP;
    for (uint base = lane(); base < words_per_row; base += LANES * LOADS) {
        uint words[LOADS][EACH];
        float scales[LOADS][EACH], biases[LOADS][EACH];
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint word = min(base + j * LANES, words_per_row - 1u);
            [[unroll]] for (uint r = 0u; r < EACH; ++r) {
                uint n = min(row + r, pc.n - 1u);
                uint group = n * groups_per_row + word * PER_WORD / GROUP;
                words[j][r] = pc.quants.at[n * words_per_row + word];
                scales[j][r] = scale_of(group);
                biases[j][r] = bias_of(group);
            }
        }
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint word = base + j * LANES;
            if (word < words_per_row) add_words(word * PER_WORD, words[j], scales[j], biases[j]);
        }
    }
}

void main() {
    uint row = (group_number() * ROWS + row_in_group()) * EACH;
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) sums[r][t] = 0.0;
    }
    accumulate(row);
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            float total = sum_lanes(sums[r][t]);
            if (lane() == 0u && t < pc.tokens && row + r < pc.n) {
                store_c(pc.c, t * pc.c_strides.x + (row + r) * pc.c_strides.y, total);
            }
        }
    }
}
