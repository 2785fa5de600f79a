// A workgroup's tokens are pairs of one expert: their vectors of x lie anywhere, and their results go there.
#if VALUES == 1
layout(buffer_reference, scalar, buffer_reference_align = 2) readonly buffer packed_ref { uint16_t at[]; };
#elif VALUES == 4
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer packed_ref { uvec2 at[]; };
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer packed_ref { uvec4 at[]; };
#endif

// The expert, the first of its pairs in the sorted list, and their number.
uint expert, first_pair, pair_count;

// Whether there is something left for this workgroup, and which rows.
bool take(out Block block) {
    // Workgroups that read the same x follow each other.
    uint number = group_number() % block_count();
    uint tile = min(group_number() / block_count(), TILES - 1u);
    block = block_of(number);
    expert = pc.tiles.at[3u * tile];
    first_pair = pc.tiles.at[3u * tile + 1u];
    pair_count = pc.tiles.at[3u * tile + 2u];
    return group_number() < TILES * block_count() && pair_count > 0u;
}

// The row of the matrices that is number `n` of the expert's.
uint matrix_row(Block block, uint n) { return min(expert, EXPERTS - 1u) * block.rows + n; }

// An expert that there is not has no products.
uint blocks_of_k() { return expert < EXPERTS ? BLOCKS : 0u; }

// The vector of x that is a pair's.
uint vector_of(uint pair) { return pair / SHARING; }

// Where a word of a fragment of tokens lies: in rows of packed x.
struct Place { uint rows[WORD_SLOTS]; };

Place place_of(uint tile, uint word) {
    Place place;
    [[unroll]] for (uint slot = 0u; slot < WORD_SLOTS; ++slot) {
        uint number = tile * FRAGMENT + slot * WORD_ROWS + word / LANES_PER_ROW;
        uint pair = pc.sorted.at[first_pair + min(number, pair_count - 1u)];
        uint row = vector_of(pair) * (HALVES * BLOCKS * STEPS);
        place.rows[slot] = row * LANES_PER_ROW + word % LANES_PER_ROW;
    }
    return place;
}

// That word, of step `step` of all k.
uvec4 load_word(Place place, uint step) {
    uint at = step * LANES_PER_ROW;
#if VALUES == 1
    uvec4 bits;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        uint low = uint(pc.packed.at[place.rows[2u * i] + at]);
        bits[i] = low | uint(pc.packed.at[place.rows[2u * i + 1u] + at]) << 16;
    }
    return bits;
#elif VALUES == 4
    return uvec4(pc.packed.at[place.rows[0] + at], pc.packed.at[place.rows[1] + at]);
#else
    return pc.packed.at[place.rows[0] + at];
#endif
}

// Whether a fragment's products are wanted.
#ifdef SKIPS
bool is_used(uint tile) { return tile * FRAGMENT < pair_count; }
#else
bool is_used(uint tile) { return true; }
#endif

// The pair of a column of a fragment: TOKENS where there is none.
uint token_of(uint tile, uint column) {
    uint number = tile * FRAGMENT + column;
    return number < pair_count ? pc.sorted.at[first_pair + number] : TOKENS;
}
