// Fragments whose order is hidden: lanes share a part of shared memory with their subgroup, where a fragment lies row by
// row and a lane has VALUES neighbours of a row, and from there the cores load it.
shared f16vec4 passed[SUBGROUPS * MATRICES * SUBGROUP * 2u];
shared float passed_sums[SUBGROUPS * FRAGMENT * FRAGMENT];

// Fours of a row.
const uint ROW_FOURS = FRAGMENT / 4u;

// What lanes of the subgroup have stored is there for all of them.
void meet() {
#ifdef LOCKSTEP
    // All subgroups would have to come, though lanes go together anyway.
    memoryBarrier(gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#else
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#endif
}

// Where fragment `number` of the subgroup's begins.
uint passed_at(uint number) { return (gl_SubgroupID * MATRICES + number) * SUBGROUP * 2u; }

f16vec4 four_of(uint low, uint high) { return f16vec4(unpackFloat2x16(low), unpackFloat2x16(high)); }

// The fragment of x of which each lane has a part.
B_FRAGMENT fragment_of(uvec4 bits) {
    uint at = passed_at(0u) + 2u * gl_SubgroupInvocationID;
    passed[at] = four_of(bits.x, bits.y);
    passed[at + 1u] = four_of(bits.z, bits.w);
    meet();
    B_FRAGMENT x;
    coopMatLoad(x, passed, passed_at(0u), ROW_FOURS, gl_CooperativeMatrixLayoutColumnMajor);
    meet();
    return x;
}

// Adds the products of step `step` of the chunks with fragments of x.
void multiply(Chunk chunks[MATRICES * SLOTS], uint step, B_FRAGMENT x[TOKEN_TILES]) {
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        f16vec2 pairs[4];
        [[unroll]] for (uint i = 0u; i < 4u; ++i) pairs[i] = chunk_pair(chunks[m], step * 4u + i);
        uint at = passed_at(m) + 2u * gl_SubgroupInvocationID;
        passed[at] = f16vec4(pairs[0], pairs[1]);
        passed[at + 1u] = f16vec4(pairs[2], pairs[3]);
    }
    meet();
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        A_FRAGMENT w;
        coopMatLoad(w, passed, passed_at(m), ROW_FOURS, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint tile = 0u; tile < TOKEN_TILES; ++tile) {
            if (is_used(tile)) sums[m * TOKEN_TILES + tile] = coopMatMulAdd(w, x[tile], sums[m * TOKEN_TILES + tile]);
        }
    }
    meet();
}

// A lane's part of a fragment of sums.
void part_of(SUMS fragment, out float part[ELEMENTS]) {
    uint begin = gl_SubgroupID * FRAGMENT * FRAGMENT;
    coopMatStore(fragment, passed_sums, begin, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
    meet();
    uint at = begin + lane_row() * FRAGMENT + lane_part() * VALUES;
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) part[i] = passed_sums[at + i];
    meet();
}
