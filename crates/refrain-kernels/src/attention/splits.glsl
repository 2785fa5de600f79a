// Combines the partial results of workgroups that split a token's positions. Uses declarations of decode.comp.
#ifdef SPLITS
// Stores the largest score and the sum of weights in the workspace, beside the partial output.
void store_totals() {
    if (gl_LocalInvocationIndex < HEADS) {
        uint at = split_at(gl_LocalInvocationIndex, gl_WorkGroupID.z) + VALUE_DIM / 2u;
        pc.workspace.at[at] = vec2(maxima[gl_LocalInvocationIndex], totals[gl_LocalInvocationIndex]);
    }
}

#if !defined(SPLIT_PASS) && !defined(COMBINE_PASS)
// Whether this workgroup is the last to finish of those of its token and heads.
bool arrives_last(uint splits) {
    return arrives_last(token * gl_NumWorkGroups.x + gl_WorkGroupID.x, splits);
}
#endif

void combine(uint splits) {
    for (uint e = gl_LocalInvocationIndex; e < HEADS * VALUE_DIM / 2u; e += THREADS) {
        uint h = e / (VALUE_DIM / 2u);
        uint d = 2u * (e % (VALUE_DIM / 2u));
        float largest = MASKED;
        float total = 0.0;
        vec2 value = vec2(0.0);
        for (uint base = 0u; base < splits; base += SPLITS_PER_STEP) {
            vec2 split_totals[SPLITS_PER_STEP], outputs[SPLITS_PER_STEP];
            UNROLL for (uint i = 0u; i < SPLITS_PER_STEP; ++i) {
                uint at = split_at(h, min(base + i, splits - 1u));
                split_totals[i] = pc.workspace.at[at + VALUE_DIM / 2u];
                outputs[i] = pc.workspace.at[at + d / 2u];
            }
            float before = largest;
            UNROLL for (uint i = 0u; i < SPLITS_PER_STEP; ++i) largest = max(largest, split_totals[i].x);
            float shrink = weight_of(before, largest);
            total *= shrink;
            value *= shrink;
            UNROLL for (uint i = 0u; i < SPLITS_PER_STEP; ++i) {
                float weight = base + i < splits ? weight_of(split_totals[i].x, largest) : 0.0;
                total += weight * split_totals[i].y;
                value += weight * outputs[i];
            }
        }
        total = with_sink(h, largest, total);
        store_pair(h, d, total == 0.0 ? vec2(0.0) : value / total);
    }
}
#endif
