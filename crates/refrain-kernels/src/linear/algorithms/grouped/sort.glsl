// Sorts (token, expert) pairs by expert and groups them into tiles of up to TILE pairs of one expert. Pairs whose
// expert is out of range go to one more bucket. The text before this one declares the arguments and operands.
layout(constant_id = 5) const uint TILE = 16;
layout(constant_id = 6) const uint BUCKETS = 2; // experts + 1

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer sorted_ref { uint at[]; };

// First the number of pairs of each expert, then the position of its next pair.
shared uint counts[BUCKETS];
// Inclusive prefix sums of pairs and tiles over invocations.
shared uvec2 running[LANES * ROWS];

uint bucket_of(uint pair) { return min(load_experts(pc.experts, pair), BUCKETS - 1u); }

uvec2 pairs_and_tiles(uint bucket) {
    uint pairs = bucket < BUCKETS ? counts[bucket] : 0u;
    return uvec2(pairs, (pairs + TILE - 1u) / TILE);
}

// Returns the inclusive prefix sum over invocations.
uvec2 sum_up_to_here(uvec2 own) {
    uint here = gl_LocalInvocationIndex;
    running[here] = own;
    for (uint apart = 1u; apart < LANES * ROWS; apart *= 2u) {
        barrier();
        if (here >= apart) own += running[here - apart];
        barrier();
        running[here] = own;
    }
    barrier();
    return own;
}

// One workgroup sorts all pairs.
void sort() {
    const uint width = LANES * ROWS;
    const uint each = (BUCKETS + width - 1u) / width;
    uint first = gl_LocalInvocationIndex * each;
    for (uint bucket = gl_LocalInvocationIndex; bucket < BUCKETS; bucket += width) counts[bucket] = 0u;
    barrier();
    for (uint pair = gl_LocalInvocationIndex; pair < PAIRS; pair += width) atomicAdd(counts[bucket_of(pair)], 1u);
    barrier();
    uvec2 own = uvec2(0u);
    for (uint i = 0u; i < each; ++i) own += pairs_and_tiles(first + i);
    uvec2 next = sum_up_to_here(own) - own;
    for (uint bucket = first; bucket < min(first + each, BUCKETS); ++bucket) {
        uvec2 size = pairs_and_tiles(bucket);
        for (uint i = 0u; i < size.y; ++i) {
            uint at = 3u * (next.y + i);
            pc.tiles.at[at] = bucket;
            pc.tiles.at[at + 1u] = next.x + i * TILE;
            pc.tiles.at[at + 2u] = min(size.x - i * TILE, TILE);
        }
        counts[bucket] = next.x;
        next += size;
    }
    barrier();
    for (uint pair = gl_LocalInvocationIndex; pair < PAIRS; pair += width) {
        pc.sorted.at[atomicAdd(counts[bucket_of(pair)], 1u)] = pair;
    }
    // The remaining tiles are empty.
    for (uint tile = running[width - 1u].y + gl_LocalInvocationIndex; tile < TILES; tile += width) {
        pc.tiles.at[3u * tile + 2u] = 0u;
    }
}
