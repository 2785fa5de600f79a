// Packs x in the layout of fragments, one token per workgroup. Tokens beyond the last are zeros.
uint x_at(uint t) { return t * X_STRIDE; }

uint packed_at(uint part, uint t, uint k) {
    uint value = k % CHUNK;
    uint column = t % TOKEN_COLUMNS;
    uint fragment = ((part * BLOCKS + k / BLOCK) * STEPS + value / VALUES) * TILES + t / TOKEN_COLUMNS;
    uint word = column % WORD_ROWS * LANES_PER_ROW + k % BLOCK / CHUNK;
    return (fragment * FRAGMENT_WORDS + word) * WORD_HALVES + column / WORD_ROWS * VALUES + value % VALUES;
}

void main() UNIFORM_FLOW {
    uint t = group_number();
    pack(t, t < TOKENS, t < TILES * TOKEN_COLUMNS);
}
