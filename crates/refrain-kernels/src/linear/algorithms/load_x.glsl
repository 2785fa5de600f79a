// Loads four consecutive values of x, or of the norm's weight.
#ifdef SEGMENT
#define X_COLUMNS (USED * COLUMNS)
#else
#define X_COLUMNS COLUMNS
#endif

// Returns values k to k + 3 of x[t], with zeros beyond the end.
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

#ifdef NORM_WEIGHT
// Returns weights k to k + 3 of the norm, with zeros beyond the end.
vec4 load_norm_weights(uint k) {
    vec4 weights = vec4(0.0);
#ifdef NORM_WEIGHT_WIDE
    if (k < COLUMNS) load4_norm_weight(pc.norm_weight, k, weights);
#else
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < COLUMNS) weights[i] = load_norm_weight(pc.norm_weight, k + i);
    }
#endif
    return weights;
}
#endif
