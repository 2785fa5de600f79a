// y[t, n] = Σ_u weight(t, u) · x[t, u, n]. An invocation computes four consecutive n of a token. With SCORES, the weights are
// the softmax over the scores of the token's experts.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    x_ref x;
    weights_ref weights;
#ifdef SCORES
    experts_ref experts;
#endif
    y_ref y;
    uint tokens, used, fours; // vec4s per token
    uint width; // weights or scores per token
    uvec2 weight_strides;
} pc;

float weight_of(uint token, uint u) {
#ifdef SCORES
    u = min(load_experts(pc.experts, token * pc.used + u), pc.width - 1u);
#endif
    return load_weights(pc.weights, token * pc.weight_strides.x + u * pc.weight_strides.y);
}

void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint token = number / pc.fours;
    if (token >= pc.tokens) return;
    uint column = number % pc.fours * 4u;
    vec4 sum = vec4(0.0);
#ifdef SCORES
    float largest = weight_of(token, 0u), total = 0.0;
    for (uint u = 1u; u < pc.used; ++u) largest = max(largest, weight_of(token, u));
#endif
    for (uint u = 0u; u < pc.used; ++u) {
        vec4 given;
        load4_x(pc.x, (token * pc.used + u) * pc.fours * 4u + column, given);
        float weight = weight_of(token, u);
#ifdef SCORES
        weight = exp(weight - largest);
        total += weight;
#endif
        sum += weight * given;
    }
#ifdef SCORES
    sum /= total;
#endif
    store4_y(pc.y, token * pc.fours * 4u + column, sum);
}
