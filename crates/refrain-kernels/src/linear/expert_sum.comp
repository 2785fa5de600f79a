// y[t, n] = Σ_u weights[t, u] · x[t, u, n]. An invocation computes four consecutive n of a token.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    x_ref x;
    weights_ref weights;
    y_ref y;
    uint tokens, used, fours; // vec4s per token
    uvec2 weight_strides;
} pc;

void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint token = number / pc.fours;
    if (token >= pc.tokens) return;
    uint column = number % pc.fours * 4u;
    vec4 sum = vec4(0.0);
    for (uint u = 0u; u < pc.used; ++u) {
        vec4 given;
        load4_x(pc.x, (token * pc.used + u) * pc.fours * 4u + column, given);
        sum += load_weights(pc.weights, token * pc.weight_strides.x + u * pc.weight_strides.y) * given;
    }
    store4_y(pc.y, token * pc.fours * 4u + column, sum);
}
