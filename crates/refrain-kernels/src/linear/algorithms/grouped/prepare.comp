// Prepares the grouped GEMM. The first workgroup sorts the pairs; the others pack vectors of x, each into a row. The
// values that the lanes of a fragment's row load in a step are contiguous.
uint x_at(uint t) { return t / X_VECTORS * X_STRIDE + t % X_VECTORS * X_BETWEEN; }

uint packed_at(uint part, uint t, uint k) {
    uint value = k % CHUNK;
    uint step = (part * BLOCKS + k / BLOCK) * STEPS + value / VALUES;
    uint row = t * X_TERMS * BLOCKS * BLOCK;
    return row + (step * LANES_PER_ROW + k % BLOCK / CHUNK) * VALUES + value % VALUES;
}

void main() UNIFORM_FLOW {
    if (group_number() == 0u) {
        sort();
        return;
    }
    uint t = (group_number() - 1u) * ROWS + row_in_group();
    pack(t, t < VECTORS, t < VECTORS);
}
