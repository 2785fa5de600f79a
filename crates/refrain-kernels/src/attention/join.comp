// Joins what workgroups computed of parts of a token's positions: weights are relative to each part's
// largest score.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    x_ref x; // [tokens, heads, parts, head_dim + 2]: output, largest score, sum of weights
    y_ref y;
#ifdef SINKS
    sinks_ref sinks;
#endif
    uint parts, head_dim;
    uvec2 y_strides; // between tokens, between heads
} pc;

const uint MOST_PARTS = 64u;
// Parts whose values an invocation loads together, so that it waits once for all.
const uint TOGETHER = 8u;

shared float largest_scores[MOST_PARTS];
shared float part_sums[MOST_PARTS];

void main() UNIFORM_FLOW {
    uint line = pc.head_dim + 2u;
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
    uint x_at = (token * gl_NumWorkGroups.x + head) * pc.parts * line;
    uint y_at = token * pc.y_strides.x + head * pc.y_strides.y;
    for (uint p = gl_LocalInvocationIndex; p < pc.parts; p += gl_WorkGroupSize.x) {
        largest_scores[p] = load_x(pc.x, x_at + p * line + pc.head_dim);
        part_sums[p] = load_x(pc.x, x_at + p * line + pc.head_dim + 1u);
    }
    barrier();
    float largest = largest_scores[0];
    for (uint p = 1u; p < pc.parts; ++p) largest = max(largest, largest_scores[p]);
    for (uint d = gl_LocalInvocationIndex; d < pc.head_dim; d += gl_WorkGroupSize.x) {
        float value = 0.0, sum = 0.0;
        for (uint first = 0u; first < pc.parts; first += TOGETHER) {
            float values[TOGETHER];
            [[unroll]] for (uint i = 0u; i < TOGETHER; ++i) {
                values[i] = load_x(pc.x, x_at + min(first + i, pc.parts - 1u) * line + d);
            }
            [[unroll]] for (uint i = 0u; i < TOGETHER; ++i) {
                uint p = first + i;
                if (p >= pc.parts) break;
                float weight = exp(max(largest_scores[p] - largest, -87.0));
                sum += weight * part_sums[p];
                value += weight * values[i];
            }
        }
#ifdef SINKS
        // e⁸⁷ leaves nothing of the others.
        sum += sum > 0.0 ? exp(min(load_sinks(pc.sinks, head) - largest, 87.0)) : 0.0;
#endif
        store_y(pc.y, y_at + d, sum > 0.0 ? value / sum : 0.0);
    }
}
