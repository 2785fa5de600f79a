// A workgroup's tokens are neighbours, packed in the order of fragments.
layout(buffer_reference, scalar, buffer_reference_align = WORD_HALVES * 2u) readonly buffer packed_ref { X_WORD at[]; };

// The workgroup's first fragment of tokens.
uint first_tile;

// Whether there is something left for this workgroup, and which rows.
bool take(out Block block) {
    // Workgroups that read the same weights follow each other.
    uint groups = TILES / TOKEN_TILES;
    uint number = result_number() / groups;
    first_tile = result_number() % groups * TOKEN_TILES;
    block = block_of(min(number, block_count() - 1u));
    return number < block_count();
}

// The row of the matrix that is number `n` of a section.
uint matrix_row(Block block, uint n) { return n; }

uint blocks_of_k() { return BLOCKS; }

// Where a word of a fragment of tokens lies.
struct Place { uint at; };

Place place_of(uint tile, uint word) { return Place((first_tile + tile) * FRAGMENT_WORDS + word); }

// That word, of step `step` of all k.
X_WORD load_word(Place place, uint step) { return pc.packed.at[step * TILES * FRAGMENT_WORDS + place.at]; }

// Whether there are tokens in a fragment.
bool is_used(uint tile) { return true; }

// The token of a column of a fragment: TOKENS and more where there is none.
uint token_of(uint tile, uint column) { return (first_tile + tile) * TOKEN_COLUMNS + column; }

// The vector of x that is a token's.
uint vector_of(uint token) { return token; }
