// Few tokens: a row of invocations takes EACH rows of w and sums over k for all tokens at once.
// An invocation loads chunks of 16 bytes, LOADS of them before it computes.
layout(constant_id = 5) const uint VECTORS = 1;
layout(constant_id = 6) const uint LOADS = 2;
layout(constant_id = 7) const uint EACH = 1;

const uint PER_CHUNK = 4u * PER_WORD;

float sums[EACH][VECTORS];

// The chunk's values 8*e … 8*e + 7, less their scale where there is no bias.
void weights(uvec4 chunk, uint e, float scale, float bias, out vec4 low, out vec4 high) {
#if BITS == 4
    low = quants(chunk[e], 0u);
    high = quants(chunk[e], 4u);
#else
    low = quants(chunk[2u * e], 0u);
    high = quants(chunk[2u * e + 1u], 0u);
#endif
#ifdef ZERO_BIAS
    low = fma(low, vec4(scale), vec4(bias));
    high = fma(high, vec4(scale), vec4(bias));
#endif
}

void add_chunk(uint at, uvec4 chunks[EACH], float scales[EACH], float biases[EACH]) {
    float parts[EACH][VECTORS];
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) parts[r][t] = 0.0;
    }
    [[unroll]] for (uint e = 0u; e < PER_CHUNK / 8u; ++e) {
        vec4 low[EACH], high[EACH];
        [[unroll]] for (uint r = 0u; r < EACH; ++r) weights(chunks[r], e, scales[r], biases[r], low[r], high[r]);
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            vec4 x, y;
            load8_x(pc.x, min(t, pc.tokens - 1u) * pc.x_stride + at + 8u * e, x, y);
            [[unroll]] for (uint r = 0u; r < EACH; ++r) parts[r][t] += dot(x, low[r]) + dot(y, high[r]);
        }
    }
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
#ifdef ZERO_BIAS
        float scale = 1.0;
#else
        float scale = scales[r];
#endif
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) sums[r][t] += parts[r][t] * scale;
    }
}

void accumulate(uint row) {
    uint chunks_per_row = pc.k / PER_CHUNK;
    uint groups_per_row = pc.k / GROUP;
    chunks_ref w = chunks_ref(pc.quants);
    for (uint base = lane(); base < chunks_per_row; base += LANES * LOADS) {
        uvec4 chunks[LOADS][EACH];
        float scales[LOADS][EACH], biases[LOADS][EACH];
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint chunk = min(base + j * LANES, chunks_per_row - 1u);
            [[unroll]] for (uint r = 0u; r < EACH; ++r) {
                uint n = min(row + r, pc.n - 1u);
                uint group = n * groups_per_row + chunk * PER_CHUNK / GROUP;
                chunks[j][r] = w.at[n * chunks_per_row + chunk];
                scales[j][r] = scale_of(group);
                biases[j][r] = bias_of(group);
            }
        }
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint chunk = base + j * LANES;
            if (chunk < chunks_per_row) add_chunk(chunk * PER_CHUNK, chunks[j], scales[j], biases[j]);
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
