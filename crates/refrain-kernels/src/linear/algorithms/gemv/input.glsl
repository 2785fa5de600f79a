// Accumulators, and the norm of x.
const uint MATRICES = EACH * PARTS;

float sums[MATRICES][VECTORS];

#ifdef NORM
shared float row_squares[VECTORS * ROWS];

// This invocation's part of the sum of x[t]², complete once all of x has been staged for the first time.
float squares[VECTORS];
// 1 / sqrt(mean(x[t]²) + eps). It multiplies the sums instead of x.
float inverse_norms[VECTORS];

vec4 with_norm_weight(vec4 quad, uint k) {
#ifdef NORM_WEIGHT
    quad *= load_norm_weights(k);
#endif
    return quad;
}

// Computes the norms, once all of x has been staged. Each workgroup computes its own.
void find_norms() {
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        float row = sum_lanes(squares[t]);
        if (lane() == 0u) row_squares[t * ROWS + row_in_group()] = row;
    }
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        float total = 0.0;
        for (uint r = 0u; r < ROWS; ++r) total += row_squares[t * ROWS + r];
        inverse_norms[t] = 1.0 / sqrt(total / float(COLUMNS) + uintBitsToFloat(EPS));
    }
}
#endif
