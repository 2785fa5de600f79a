// The tokens of a workgroup are pairs of one expert. Their vectors of x and their results are scattered.
#if VALUES == 1
layout(buffer_reference, scalar, buffer_reference_align = 2) readonly buffer packed_ref { uint16_t at[]; };
#elif VALUES == 4
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer packed_ref { uvec2 at[]; };
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer packed_ref { uvec4 at[]; };
#endif

// The expert of the tile, its first pair in the sorted list, and its number of pairs.
uint expert, first_pair, pair_count;

// Finds the tile and block of rows of this workgroup. Returns false if there is nothing to compute.
bool take(out Block block) {
    // Workgroups that read the same x have consecutive numbers.
    uint number = group_number() % block_count();
    uint tile = min(group_number() / block_count(), TILES - 1u);
    block = block_of(number);
    expert = pc.tiles.at[3u * tile];
    first_pair = pc.tiles.at[3u * tile + 1u];
    pair_count = pc.tiles.at[3u * tile + 2u];
    return group_number() < TILES * block_count() && pair_count > 0u;
}

// Row of the stacked matrices for row `n` of the expert.
uint matrix_row(Block block, uint n) { return min(expert, EXPERTS - 1u) * EXPERT_ROWS + n; }

// An expert out of range has no products.
uint blocks_of_k() { return expert < EXPERTS ? BLOCKS : 0u; }

// The vector of x of a pair.
uint vector_of(uint pair) { return pair / SHARING; }

// Position of a word of a fragment of tokens, in rows of packed x.
struct Place { uint rows[WORD_SLOTS]; };

Place place_of(uint tile, uint word) {
    Place place;
    [[unroll]] for (uint slot = 0u; slot < WORD_SLOTS; ++slot) {
        uint number = tile * FRAGMENT + slot * WORD_ROWS + word / LANES_PER_ROW;
        uint pair = pc.sorted.at[first_pair + min(number, pair_count - 1u)];
        uint row = vector_of(pair) * (X_TERMS * BLOCKS * STEPS);
        place.rows[slot] = row * LANES_PER_ROW + word % LANES_PER_ROW;
    }
    return place;
}

// Loads that word for step `step` of k.
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

// Whether a fragment has tokens. Without SKIP_EMPTY, empty fragments are multiplied too.
#ifdef SKIP_EMPTY
bool is_used(uint tile) { return tile * FRAGMENT < pair_count; }
#else
bool is_used(uint tile) { return true; }
#endif

// The pair of a column of a fragment, or TOKENS if there is none.
uint token_of(uint tile, uint column) {
    uint number = tile * FRAGMENT + column;
    return number < pair_count ? pc.sorted.at[first_pair + number] : TOKENS;
}
