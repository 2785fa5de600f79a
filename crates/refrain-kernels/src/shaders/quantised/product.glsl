// c[t, n] = sum over k of x[t, k] * w[n, k] for quantised w.
layout(push_constant, scalar) uniform Push {
    x_ref x;
    words_ref quants;
    scales_ref scales;
#ifdef ZERO_BIAS
    biases_ref biases;
#endif
    c_ref c;
    uint tokens, n, k;
    uint x_stride;   // between tokens
    uvec2 c_strides; // along tokens, n
} pc;

float scale_of(uint group) { return load_scales(pc.scales, group); }

float bias_of(uint group) {
#ifdef ZERO_BIAS
    return load_biases(pc.biases, group);
#else
    return 0.0;
#endif
}
