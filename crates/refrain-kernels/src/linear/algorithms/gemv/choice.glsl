// Top-k: the indices of each token's CHOSEN largest results of section CHOICE. Workgroups store sort keys; the last one
// to arrive selects.
void store_key(uint t, uint row, float result) { pc.partial_keys.at[t * 4u * FOURS + row] = order_key(result); }

#ifdef FULL_SUBGROUPS
// A subgroup selects for a token. Each iteration picks the largest remaining key, of equal keys the first. The code is
// short on purpose: code that runs once costs its instruction fetch.
void choose() {
    if (!arrives_last(0u, gl_NumWorkGroups.x * gl_NumWorkGroups.y)) return;
    const uint EACH_KEYS = (4u * FOURS + FULL_SUBGROUPS - 1u) / FULL_SUBGROUPS;
    for (uint t = gl_SubgroupID; t < VECTORS; t += gl_NumSubgroups) {
        uint own[EACH_KEYS];
        [[unroll]] for (uint i = 0u; i < EACH_KEYS; ++i) {
            uint element = i * FULL_SUBGROUPS + gl_SubgroupInvocationID;
            own[i] = element < CHOICE_ROWS ? pc.partial_keys.at[t * 4u * FOURS + element] : 0u;
        }
        [[dont_unroll]] for (uint place = 0u; place < CHOSEN; ++place) {
            uint key = 0u;
            uint element = 0u;
            [[unroll]] for (uint i = 0u; i < EACH_KEYS; ++i) {
                bool is_larger = own[i] > key;
                key = is_larger ? own[i] : key;
                element = is_larger ? i * FULL_SUBGROUPS + gl_SubgroupInvocationID : element;
            }
            uint first = subgroupMin(key == subgroupMax(key) ? element : ~0u);
            if (subgroupElect()) store_places(pc.places, t * CHOSEN + place, first);
            [[unroll]] for (uint i = 0u; i < EACH_KEYS; ++i) {
                if (i * FULL_SUBGROUPS + gl_SubgroupInvocationID == first) own[i] = 0u;
            }
        }
    }
}
#else
void choose() {
    if (!arrives_last(0u, gl_NumWorkGroups.x * gl_NumWorkGroups.y)) return;
    left_fours_ref left = left_fours_ref(pc.partial_keys);
    for (uint t = 0u; t < VECTORS; ++t) {
        for (uint four = gl_LocalInvocationIndex; four < FOURS; four += gl_WorkGroupSize.x) {
            bvec4 there = lessThan(4u * four + uvec4(0u, 1u, 2u, 3u), uvec4(CHOICE_ROWS));
            keys[four] = mix(uvec4(0u), left.at[t * FOURS + four], there);
        }
        find_foremost(CHOSEN);
        for (uint i = gl_LocalInvocationIndex; i < candidate_count(CHOSEN); i += gl_WorkGroupSize.x) {
            uint element = candidate(i);
            uint place = place_of(element, CHOSEN);
            if (place < CHOSEN) store_places(pc.places, t * CHOSEN + place, element);
        }
        // Some invocations may still read this token's keys.
        barrier();
    }
}
#endif
