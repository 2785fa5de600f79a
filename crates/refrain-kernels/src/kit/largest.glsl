// Which of a row's elements are the largest, found by a workgroup of any size. Its keys (order.glsl) lie in shared memory
// in FOURS fours; what is beyond the row has the key 0. The `count` largest are among the elements of those `count`
// fours whose own largest come first, and how many of these come before an element is its place. Of equal elements the
// first comes first. Loops are short, for they are fetched to be run once.
const uint TOPS = (FOURS + 3u) / 4u;

shared uvec4 keys[FOURS];
// The largest key of each four.
shared uvec4 tops[TOPS];
// The fours that come before the others, in order.
shared uint foremost[FOURS];

// How many of the four elements from `first` on, with keys `others`, come before an element.
uint count_before(uvec4 others, uint first, uint key, uint element) {
    uvec4 elements = first + uvec4(0u, 1u, 2u, 3u);
    uvec4 before = uvec4(greaterThan(others, uvec4(key)));
    before += uvec4(equal(others, uvec4(key))) * uvec4(lessThan(elements, uvec4(element)));
    return before.x + before.y + before.z + before.w;
}

// To be called once `keys` are there, by all invocations.
void find_foremost(uint count) {
    barrier();
    for (uint four = gl_LocalInvocationIndex; four < 4u * TOPS; four += gl_WorkGroupSize.x) {
        uvec4 own = four < FOURS ? keys[four] : uvec4(0u);
        tops[four / 4u][four % 4u] = max(max(own.x, own.y), max(own.z, own.w));
    }
    barrier();
    for (uint four = gl_LocalInvocationIndex; four < FOURS; four += gl_WorkGroupSize.x) {
        uint key = tops[four / 4u][four % 4u];
        uint place = 0u;
        [[dont_unroll]] for (uint i = 0u; i < TOPS; ++i) place += count_before(tops[i], 4u * i, key, four);
        if (place < count) foremost[place] = four;
    }
    barrier();
}

// Behind that: how many elements the largest are among, each of them, and its place among all, `count` or more where it
// is none of the largest.
uint candidate_count(uint count) { return 4u * min(count, FOURS); }

uint candidate(uint number) { return 4u * foremost[number / 4u] + number % 4u; }

uint place_of(uint element, uint count) {
    uint key = keys[element / 4u][element % 4u];
    uint place = 0u;
    [[dont_unroll]] for (uint i = 0u; i < min(count, FOURS); ++i) {
        place += count_before(keys[foremost[i]], 4u * foremost[i], key, element);
    }
    return place;
}
