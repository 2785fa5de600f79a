// What is read of x, and its norm.
const uint MATRICES = EACH * PARTS;

float sums[MATRICES][VECTORS];

#ifdef SEGMENT
#define X_COLUMNS (USED * COLUMNS)
#else
#define X_COLUMNS COLUMNS
#endif

// Values k to k + 3 of x[t], zeros beyond the last.
vec4 load_quad(uint t, uint k) {
    uint at = x_at + t * X_STRIDE + k * X_WITHIN;
    vec4 quad = vec4(0.0);
#ifdef X_WIDE
    if (k < X_COLUMNS) load4_x(pc.x, at, quad);
#else
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < X_COLUMNS) quad[i] = load_x(pc.x, at + i * X_WITHIN);
    }
#endif
#ifdef SEGMENT
    quad *= expert_weight(k);
#endif
    return quad;
}

#ifdef NORM
shared float row_squares[VECTORS * ROWS];

// This invocation's part of the sum over x[t]², once all of x was staged for the first time.
float squares[VECTORS];
// 1 / sqrt(mean(x[t]²) + eps): the sums are multiplied by it, not x.
float inverse_norms[VECTORS];

vec4 with_norm_weight(vec4 quad, uint k) {
#if defined NORM_WEIGHT_WIDE
    vec4 weight = vec4(0.0);
    if (k < COLUMNS) load4_norm_weight(pc.norm_weight, k, weight);
    quad *= weight;
#elif defined NORM_WEIGHT
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < COLUMNS) quad[i] *= load_norm_weight(pc.norm_weight, k + i);
    }
#endif
    return quad;
}

// To be called once all of x was staged; each workgroup computes the norms for itself.
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
