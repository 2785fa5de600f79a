// Combines the partial results of workgroups that split a token's positions. Weights are relative to each split's
// largest score.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    x_ref x; // [tokens, heads, splits, head_dim + 2]: output, largest score, sum of weights
    y_ref y;
#ifdef SINKS
    sinks_ref sinks;
#endif
    uint splits, head_dim;
    uvec2 y_strides; // between tokens, between heads
} pc;

const uint MAX_SPLITS = 64u;
// A split's largest score if a score overflowed: the result is not a number then.
const float OVERFLOW = 3.2e38;
// Splits whose loads are issued together, so that an invocation stalls once for all of them.
const uint SPLITS_PER_STEP = 8u;

shared float largest_scores[MAX_SPLITS];
shared float split_sums[MAX_SPLITS];

void main() UNIFORM_FLOW {
    uint line = pc.head_dim + 2u;
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
    uint x_at = (token * gl_NumWorkGroups.x + head) * pc.splits * line;
    uint y_at = token * pc.y_strides.x + head * pc.y_strides.y;
    for (uint p = gl_LocalInvocationIndex; p < pc.splits; p += gl_WorkGroupSize.x) {
        largest_scores[p] = load_x(pc.x, x_at + p * line + pc.head_dim);
        split_sums[p] = load_x(pc.x, x_at + p * line + pc.head_dim + 1u);
    }
    barrier();
    float largest = largest_scores[0];
    for (uint p = 1u; p < pc.splits; ++p) largest = max(largest, largest_scores[p]);
    for (uint d = gl_LocalInvocationIndex; d < pc.head_dim; d += gl_WorkGroupSize.x) {
        float value = 0.0, sum = 0.0;
        for (uint first = 0u; first < pc.splits; first += SPLITS_PER_STEP) {
            float values[SPLITS_PER_STEP];
            [[unroll]] for (uint i = 0u; i < SPLITS_PER_STEP; ++i) {
                values[i] = load_x(pc.x, x_at + min(first + i, pc.splits - 1u) * line + d);
            }
            [[unroll]] for (uint i = 0u; i < SPLITS_PER_STEP; ++i) {
                uint p = first + i;
                if (p >= pc.splits) break;
                float weight = exp(max(largest_scores[p] - largest, -87.0));
                sum += weight * split_sums[p];
                value += weight * values[i];
            }
        }
#ifdef SINKS
        // Beside e⁸⁷, other weights vanish.
        sum += sum > 0.0 ? exp(min(load_sinks(pc.sinks, head) - largest, 87.0)) : 0.0;
#endif
        if (largest >= OVERFLOW) sum = uintBitsToFloat(0x7fc00000u);
        store_y(pc.y, y_at + d, sum == 0.0 ? 0.0 : value / sum);
    }
}
