// Whether consecutive invocations load consecutive k. Set if k is the dimension with the smaller stride, so that loads
// are coalesced.
layout(constant_id = 10) const uint A_ALONG_K = 1;
layout(constant_id = 11) const uint B_ALONG_K = 1;

void load_left(uint at, uint row, uint k) {
    for (uint e = gl_LocalInvocationIndex; e < TILE_ROWS * DEPTH; e += THREADS) {
        uint dk = A_ALONG_K != 0u ? e % DEPTH : e / TILE_ROWS;
        uint dm = A_ALONG_K != 0u ? e / DEPTH : e % TILE_ROWS;
        float value = 0.0;
        if (row + dm < pc.m && k + dk < pc.k) value = load_a(pc.a, at + (row + dm) * pc.a_strides.x + (k + dk) * pc.a_strides.y);
        tiles[left_at(dk, dm)][dm % 4u] = value;
    }
}

void load_right(uint at, uint column, uint k) {
    for (uint e = gl_LocalInvocationIndex; e < TILE_COLUMNS * DEPTH; e += THREADS) {
        uint dk = B_ALONG_K != 0u ? e % DEPTH : e / TILE_COLUMNS;
        uint dn = B_ALONG_K != 0u ? e / DEPTH : e % TILE_COLUMNS;
        float value = 0.0;
        if (column + dn < pc.n && k + dk < pc.k) value = load_b(pc.b, at + (k + dk) * pc.b_strides.x + (column + dn) * pc.b_strides.y);
        tiles[right_at(dk, dn)][dn % 4u] = value;
    }
}

void store_tile(uint at, uint row, uint column) {
    for (uint i = slice(); i < OWN_ROWS; i += SLICES) {
        uint m = row + tile_row(i);
        vec4 sums[COLUMN_FOURS];
        row_sums(i, sums);
        [[unroll]] for (uint j = 0u; j < 4u * COLUMN_FOURS; ++j) {
            uint n = column + tile_column(j / 4u) + j % 4u;
            if (m < pc.m && n < pc.n) store_c(pc.c, at + m * pc.c_strides.x + n * pc.c_strides.y, sums[j / 4u][j % 4u]);
        }
    }
}

void main() {
    uint row = gl_WorkGroupID.y * TILE_ROWS;
    uint column = gl_WorkGroupID.x / uint(K_SPLITS) * TILE_COLUMNS;
    uint steps = (pc.k + DEPTH - 1u) / DEPTH;
    uint begin = steps * k_split() / uint(K_SPLITS) * DEPTH;
    uint end = steps * (k_split() + 1u) / uint(K_SPLITS) * DEPTH;
    for (uint batch = gl_WorkGroupID.z; batch < pc.batches; batch += gl_NumWorkGroups.z) {
        clear_tile();
        for (uint k = begin; k < end; k += DEPTH) {
            load_left(batch_offset(batch, pc.a_batch), row, k);
            load_right(batch_offset(batch, pc.b_batch), column, k);
            barrier();
            multiply_tiles();
            barrier();
        }
        reduce_slices();
#if K_SPLITS > 1
        store_partial_sums();
        if (!arrives_last()) return;
        add_sums();
#endif
        store_tile(batch_offset(batch, pc.c_batch), row, column);
    }
}
