// The tokens of a workgroup are consecutive, and x is packed in the layout of fragments.
layout(buffer_reference, scalar, buffer_reference_align = WORD_HALVES * 2u) readonly buffer packed_ref { X_WORD at[]; };

// First fragment of tokens of the workgroup.
uint first_tile;

// Finds the tile and block of rows of this workgroup. Returns false if there is nothing to compute.
bool take(out Block block) {
    // Workgroups that read the same weights have consecutive numbers.
    uint groups = TILES / TOKEN_TILES;
    uint number = result_number() / groups;
    first_tile = result_number() % groups * TOKEN_TILES;
    block = block_of(min(number, block_count() - 1u));
    return number < block_count();
}

// Row of the matrix for row `n` of a section.
uint matrix_row(Block block, uint n) { return n; }

uint blocks_of_k() { return BLOCKS; }

// Position of a word of a fragment of tokens.
struct Place { uint at; };

Place place_of(uint tile, uint word) { return Place((first_tile + tile) * FRAGMENT_WORDS + word); }

// Loads that word for step `step` of k.
X_WORD load_word(Place place, uint step) { return pc.packed.at[step * TILES * FRAGMENT_WORDS + place.at]; }

// Whether a fragment has tokens.
bool is_used(uint tile) { return true; }

// The token of a column of a fragment; at least TOKENS if there is none.
uint token_of(uint tile, uint column) { return (first_tile + tile) * TOKEN_COLUMNS + column; }

// The vector of x of a token.
uint vector_of(uint token) { return token; }
