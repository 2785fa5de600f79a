// Product of one (token, expert) pair: a workgroup multiplies ROWS rows of the expert's matrix with the pair's vector.
// A row of invocations sums over k.
layout(push_constant, scalar) uniform Push {
    x_ref x;
    experts_ref experts;
#ifdef BITS
    words_ref quants;
    scales_ref scales;
#ifdef BIASES
    biases_ref biases;
#endif
#else
    w_ref w;
#endif
    y_ref y;
    uint used; // experts per token
    uint count; // number of experts
    uint rows; // of one expert
    uint k;
    uvec2 x_strides; // between tokens, between a token's experts
} pc;

// Returns this invocation's part of the sum.
float part_of_row(uint row, uint x_at) {
    float sum = 0.0;
#ifdef BITS
    uint runs = pc.k / RUN;
    uint groups = pc.k / GROUP;
    for (uint run = lane(); run < runs; run += LANES) {
        RUN_BITS bits = load_quants(pc.quants, row, pc.k, run);
        vec2 parameters = PARAMETERS(pc, row * groups + run * RUN / GROUP);
#if BITS == 8
        vec4 x;
        load4_x(pc.x, x_at + run * RUN, x);
#else
        vec4 x, y;
        load8_x(pc.x, x_at + run * RUN, x, y);
        sum += dot(y, dequantise(quants(bits, 4u), parameters));
#endif
        sum += dot(x, dequantise(quants(bits, 0u), parameters));
    }
#elif defined RUN
    for (uint k = lane() * RUN; k < pc.k; k += LANES * RUN) {
        vec4 x, w;
#if RUN == 8
        vec4 x_high, w_high;
        load8_x(pc.x, x_at + k, x, x_high);
        load8_w(pc.w, row * pc.k + k, w, w_high);
        sum += dot(x_high, w_high);
#else
        load4_x(pc.x, x_at + k, x);
        load4_w(pc.w, row * pc.k + k, w);
#endif
        sum += dot(x, w);
    }
#else
    for (uint k = lane(); k < pc.k; k += LANES) sum += load_x(pc.x, x_at + k) * load_w(pc.w, row * pc.k + k);
#endif
    return sum;
}

void main() UNIFORM_FLOW {
    uint pair = gl_WorkGroupID.y;
    uint expert = load_experts(pc.experts, pair);
    uint n = gl_WorkGroupID.x * ROWS + row_in_group();
    uint row = min(expert, pc.count - 1u) * pc.rows + min(n, pc.rows - 1u);
    uint x_at = pair / pc.used * pc.x_strides.x + pair % pc.used * pc.x_strides.y;
    float sum = sum_lanes(part_of_row(row, x_at));
    if (lane() == 0u && n < pc.rows) store_y(pc.y, pair * pc.rows + n, expert < pc.count ? sum : 0.0);
}
