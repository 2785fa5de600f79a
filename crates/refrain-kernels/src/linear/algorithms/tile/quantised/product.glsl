// c[t, n] = sum over k of x[t, k] * w[n, k] for quantised w.
layout(push_constant, scalar) uniform Push {
    x_ref x;
    words_ref quants;
    scales_ref scales;
#ifdef BIASES
    biases_ref biases;
#endif
    c_ref c;
    uint tokens, n, k;
    uint x_stride;   // between tokens
    uvec2 c_strides; // along tokens, n
} pc;
