// The places of each token's CHOSEN largest results of section CHOICE: workgroups leave their keys, and the last finds them.
void leave_key(uint t, uint row, float result) { pc.left_keys.at[t * 4u * FOURS + row] = order_key(result); }

void choose() {
    if (!arrives_last(0u, gl_NumWorkGroups.x * gl_NumWorkGroups.y)) return;
    left_fours_ref left = left_fours_ref(pc.left_keys);
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
        // Some may still read this token's keys.
        barrier();
    }
}
