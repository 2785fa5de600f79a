// c[t] = the dequantised row indices[t] of w, or zeros if out of range. An invocation writes the values of one run.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    words_ref quants;
    scales_ref scales;
#ifdef BIASES
    biases_ref biases;
#endif
    indices_ref indices;
    c_ref c;
    uint tokens, n, k;
    uint indices_stride;
    uvec2 c_strides; // along tokens, k
} pc;

void main() {
    uint runs = pc.k / RUN;
    uint e = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    uint token = e / runs;
    if (token >= pc.tokens) return;
    uint number = e % runs;
    uint row = uint(load_indices(pc.indices, token * pc.indices_stride));
    bool inside = row < pc.n;
    RUN_BITS run = RUN_BITS(0u);
    vec2 parameters = vec2(0.0);
    if (inside) {
        run = load_quants(pc.quants, row, pc.k, number);
        parameters = PARAMETERS(pc, row * (pc.k / GROUP) + number * RUN / GROUP);
    }
    uint at = token * pc.c_strides.x + number * RUN * pc.c_strides.y;
    [[unroll]] for (uint j = 0u; j < RUN; j += 4u) {
        vec4 value = inside ? dequantise(quants(run, j), parameters) : vec4(0.0);
        [[unroll]] for (uint i = 0u; i < 4u; ++i) store_c(pc.c, at + (j + i) * pc.c_strides.y, value[i]);
    }
}
