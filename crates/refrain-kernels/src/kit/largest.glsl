// Top-k of a row, by a workgroup of any size. The row's keys (order.glsl) are in shared memory as FOURS vec4s; elements
// beyond the row have key 0. The `count` largest elements are among those of the `count` vec4s whose own largest keys
// come first. The rank of an element is the number of those elements that precede it; of equal elements the first comes
// first. Loops are kept short, since code that runs once costs its instruction fetch.
const uint TOPS = (FOURS + 3u) / 4u;

shared uvec4 keys[FOURS];
// The largest key of each vec4.
shared uvec4 tops[TOPS];
// The vec4s with the largest keys, in order.
shared uint foremost[FOURS];

// Returns how many of the four elements from `first` on, with keys `others`, precede an element.
uint count_before(uvec4 others, uint first, uint key, uint element) {
    uvec4 elements = first + uvec4(0u, 1u, 2u, 3u);
    uvec4 before = uvec4(greaterThan(others, uvec4(key)));
    before += uvec4(equal(others, uvec4(key))) * uvec4(lessThan(elements, uvec4(element)));
    return before.x + before.y + before.z + before.w;
}

// Fills `foremost`. All invocations must call it, once `keys` is filled.
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

// After find_foremost: the number of candidates, each candidate, and its rank, which is `count` or more if it is not
// selected.
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
