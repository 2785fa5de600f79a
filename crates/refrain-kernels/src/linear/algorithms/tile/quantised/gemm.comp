// Many tokens: tiles of x and of dequantised w in shared memory.
void load_left(uint token, uint k) {
    for (uint e = gl_LocalInvocationIndex; e < TILE_ROWS * DEPTH; e += THREADS) {
        uint dk = e % DEPTH;
        uint dt = e / DEPTH;
        float value = 0.0;
        if (token + dt < pc.tokens && k + dk < pc.k) value = load_x(pc.x, (token + dt) * pc.x_stride + k + dk);
        left_tile[dk * LEFT_LINE + dt] = value;
    }
}

void load_right(uint row, uint k) {
    const uint runs = DEPTH / RUN;
    for (uint e = gl_LocalInvocationIndex; e < TILE_COLUMNS * runs; e += THREADS) {
        uint n = row + e / runs;
        uint from = k + e % runs * RUN;
        RUN_BITS run = RUN_BITS(0u);
        vec2 parameters = vec2(0.0);
        if (n < pc.n && from < pc.k) {
            run = load_quants(pc.quants, n, pc.k, from / RUN);
            parameters = PARAMETERS(pc, n * (pc.k / GROUP) + from / GROUP);
        }
        [[unroll]] for (uint j = 0u; j < RUN; j += 4u) {
            vec4 value = dequantise(quants(run, j), parameters);
            uint at = (e % runs * RUN + j) * RIGHT_LINE + e / runs;
            [[unroll]] for (uint i = 0u; i < 4u; ++i) right_tile[at + i * RIGHT_LINE] = value[i];
        }
    }
}

void main() {
    uint token = gl_WorkGroupID.y * TILE_ROWS;
    uint row = gl_WorkGroupID.x * TILE_COLUMNS;
    clear_tile();
    for (uint k = 0u; k < pc.k; k += DEPTH) {
        load_left(token, k);
        load_right(row, k);
        barrier();
        multiply_tiles();
        barrier();
    }
    token += gl_LocalInvocationIndex / BROAD;
    row += gl_LocalInvocationIndex % BROAD;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        [[unroll]] for (uint j = 0u; j < 4u; ++j) {
            uint t = token + i * HIGH;
            uint n = row + j * BROAD;
            if (t < pc.tokens && n < pc.n) store_c(pc.c, t * pc.c_strides.x + n * pc.c_strides.y, tile_sums[i][j]);
        }
    }
}
