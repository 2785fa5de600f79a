// Tokens in the order of fragments, a workgroup each; those beyond the last are zeros.
uint x_at(uint t) { return t * X_STRIDE; }

uint packed_at(uint part, uint t, uint k) {
    uint value = k % CHUNK;
    uint column = t % FRAGMENT;
    uint fragment = ((part * BLOCKS + k / BLOCK) * STEPS + value / VALUES) * TILES + t / FRAGMENT;
    uint fragment_lane = column % ROWS_EACH * LANES_PER_ROW + k % BLOCK / CHUNK;
    return (fragment * SUBGROUP + fragment_lane) * 8u + column / ROWS_EACH * VALUES + value % VALUES;
}

void main() UNIFORM_FLOW {
    uint t = group_number();
    pack(t, t < TOKENS, t < TILES * FRAGMENT);
}
