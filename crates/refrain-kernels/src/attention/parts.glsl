// How workgroups that share a token's positions join what each computed: what decode.comp declares.
#ifdef PARTS
// Puts what the join needs beside the output into the workspace.
void leave_ends() {
    if (gl_LocalInvocationIndex < HEADS) {
        uint at = part_at(gl_LocalInvocationIndex, gl_WorkGroupID.z) + VALUE_DIM / 2u;
        pc.workspace.at[at] = vec2(maxima[gl_LocalInvocationIndex], totals[gl_LocalInvocationIndex]);
    }
}

#if !defined(SHARES) && !defined(JOINS)
// Whether this workgroup is the last of its token's heads.
bool arrives_last(uint parts) {
    return arrives_last(token * gl_NumWorkGroups.x + gl_WorkGroupID.x, parts);
}
#endif

void join(uint parts) {
    for (uint e = gl_LocalInvocationIndex; e < HEADS * VALUE_DIM / 2u; e += THREADS) {
        uint h = e / (VALUE_DIM / 2u);
        uint d = 2u * (e % (VALUE_DIM / 2u));
        float largest = MASKED;
        float total = 0.0;
        vec2 value = vec2(0.0);
        for (uint base = 0u; base < parts; base += AT_ONCE) {
            vec2 ends[AT_ONCE], outputs[AT_ONCE];
            UNROLL for (uint i = 0u; i < AT_ONCE; ++i) {
                uint at = part_at(h, min(base + i, parts - 1u));
                ends[i] = pc.workspace.at[at + VALUE_DIM / 2u];
                outputs[i] = pc.workspace.at[at + d / 2u];
            }
            float before = largest;
            UNROLL for (uint i = 0u; i < AT_ONCE; ++i) largest = max(largest, ends[i].x);
            float shrink = weight_of(before, largest);
            total *= shrink;
            value *= shrink;
            UNROLL for (uint i = 0u; i < AT_ONCE; ++i) {
                float weight = base + i < parts ? weight_of(ends[i].x, largest) : 0.0;
                total += weight * ends[i].y;
                value += weight * outputs[i];
            }
        }
        total = with_sink(h, largest, total);
        store_pair(h, d, total > 0.0 ? value / total : vec2(0.0));
    }
}
#endif
