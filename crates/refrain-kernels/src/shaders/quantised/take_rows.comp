// c[t] = the dequantised row indices[t] of w, or zeros: an invocation writes one word's values.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    words_ref quants;
    scales_ref scales;
#ifdef ZERO_BIAS
    biases_ref biases;
#endif
    indices_ref indices;
    c_ref c;
    uint tokens, n, k;
    uint indices_stride;
    uvec2 c_strides; // along tokens, k
} pc;

void main() {
    uint words = pc.k / PER_WORD;
    uint e = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    uint token = e / words;
    if (token >= pc.tokens) return;
    uint word_in_row = e % words;
    uint row = uint(load_indices(pc.indices, token * pc.indices_stride));
    bool inside = row < pc.n;
    uint word = 0u;
    float scale = 0.0, bias = 0.0;
    if (inside) {
        uint group = row * (pc.k / GROUP) + word_in_row * PER_WORD / GROUP;
        word = pc.quants.at[row * words + word_in_row];
        scale = load_scales(pc.scales, group);
#ifdef ZERO_BIAS
        bias = load_biases(pc.biases, group);
#endif
    }
    uint at = token * pc.c_strides.x + word_in_row * PER_WORD * pc.c_strides.y;
    [[unroll]] for (uint j = 0u; j < PER_WORD; j += 4u) {
        vec4 value = inside ? dequantise(quants(word, j), scale, bias) : vec4(0.0);
        [[unroll]] for (uint i = 0u; i < 4u; ++i) store_c(pc.c, at + (j + i) * pc.c_strides.y, value[i]);
    }
}
