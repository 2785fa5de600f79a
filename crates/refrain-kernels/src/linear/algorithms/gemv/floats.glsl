// Stages x as floats. A tile of x is in shared memory, in an order in which consecutive invocations read consecutive
// words.
const uint QUADS = CHUNK / 4u;
// Odd, so that the quads of a chunk are stored to different banks.
const uint LINE = TILE | 1u;

shared vec4 x_tile[VECTORS * QUADS * LINE];

// Stages the tile of x whose first chunk is `first` in shared memory.
void stage(uint first) {
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        for (uint e = gl_LocalInvocationIndex; e < QUADS * TILE; e += ROWS * LANES) {
            uint k = first * CHUNK + 4u * e;
            vec4 quad = load_quad(t, k);
#ifdef NORM
            squares[t] += dot(quad, quad);
            quad = with_norm_weight(quad, k);
#endif
            x_tile[(t * QUADS + e % QUADS) * LINE + e / QUADS] = quad;
        }
    }
    barrier();
}

// Multiplies chunk `c` of the tile with each row's chunk and accumulates.
void add_chunks(uint c, Chunk chunks[MATRICES]) {
    [[unroll]] for (uint term = 0u; term < TERMS; ++term) {
        float products[MATRICES][VECTORS];
        float totals[VECTORS];
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            totals[t] = 0.0;
            [[unroll]] for (uint m = 0u; m < MATRICES; ++m) products[m][t] = 0.0;
        }
        UNROLL for (uint j = 0u; j < QUADS / TERMS; ++j) {
            uint number = term * (QUADS / TERMS) + j;
            vec4 w[MATRICES];
            [[unroll]] for (uint m = 0u; m < MATRICES; ++m) w[m] = chunk_quad(chunks[m], number);
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                vec4 x = x_tile[(t * QUADS + number) * LINE + c];
                totals[t] += dot(x, vec4(1.0));
                [[unroll]] for (uint m = 0u; m < MATRICES; ++m) products[m][t] += dot(x, w[m]);
            }
        }
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                sums[m][t] += chunk_sum(chunks[m], term, products[m][t], totals[t]);
            }
        }
    }
}
