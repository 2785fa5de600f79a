// Many tokens: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A workgroup takes a
// tile of tokens and, of each matrix, a tile of rows. Declared elsewhere: the tiles, the arguments, Planes, Chunk and
// how chunks are loaded, Inputs and the epilogue.
const uint QUADS = CHUNK / 4u;
// Values of a tile of x that this invocation loads.
const uint TURNS = (TILE_ROWS * DEPTH + THREADS - 1u) / THREADS;

vec4 sums[PARTS][4];

#ifdef NORM
// Of what this invocation loads, the sums of squares.
float squares[TURNS];
// 1 / sqrt(mean(x[t]²) + eps): the sums are multiplied by it, not x.
shared float inverse_norms[TILE_ROWS];
#endif

void load_left(uint token, uint k) {
    for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * THREADS;
        uint dk = e % DEPTH;
        uint dt = e / DEPTH;
        if (dt >= TILE_ROWS) break;
        float value = 0.0;
        if (token + dt < TOKENS && k + dk < COLUMNS) {
            value = load_x(pc.x, (token + dt) * X_STRIDE + (k + dk) * X_WITHIN);
#ifdef NORM
            squares[turn] += value * value;
#endif
#ifdef NORM_WEIGHT
            value *= load_norm_weight(pc.norm_weight, k + dk);
#endif
        }
        left_tile[dk * LEFT_LINE + dt] = value;
    }
}

void load_right(Block block, uint part, uint k) {
    const uint chunks = DEPTH / CHUNK;
    for (uint e = gl_LocalInvocationIndex; e < TILE_COLUMNS * chunks; e += THREADS) {
        uint n = block.row + e / chunks;
        uint from = k + e % chunks * CHUNK;
        bool is_inside = n < block.rows && from < COLUMNS;
        Chunk chunk = load_chunk(planes_of(block.section, part), min(n, block.rows - 1u), is_inside ? from / CHUNK : 0u);
        UNROLL for (uint q = 0u; q < QUADS; ++q) {
            vec4 quad = chunk_quad(chunk, q);
            uint at = (e % chunks * CHUNK + 4u * q) * RIGHT_LINE + e / chunks;
            [[unroll]] for (uint i = 0u; i < 4u; ++i) {
                float value = chunk_sum(chunk, q * TERMS / QUADS, quad[i], 1.0);
                right_tile[at + i * RIGHT_LINE] = is_inside ? value : 0.0;
            }
        }
    }
}

#ifdef NORM
// To be called once all of x was loaded: each square meets those of its token in a tile's memory.
void find_norms() {
    for (uint turn = 0u; turn < TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * THREADS;
        if (e / DEPTH < TILE_ROWS) left_tile[e % DEPTH * LEFT_LINE + e / DEPTH] = squares[turn];
    }
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < TILE_ROWS; t += THREADS) {
        float total = 0.0;
        for (uint dk = 0u; dk < DEPTH; ++dk) total += left_tile[dk * LEFT_LINE + t];
        inverse_norms[t] = 1.0 / sqrt(total / float(COLUMNS) + uintBitsToFloat(EPS));
    }
    barrier();
}
#endif

void store_result(Block block, uint token, uint row, uint i, uint j) {
    uint t = token + row;
    uint n = block.row + gl_LocalInvocationIndex % BROAD + j * BROAD;
    if (t >= TOKENS || n >= block.rows) return;
    float totals[PARTS];
    [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
        totals[p] = sums[p][i][j];
#ifdef NORM
        totals[p] *= inverse_norms[row];
#endif
    }
    Inputs inputs = with_sums(load_inputs(block.section, t, n), totals);
    uint at = t * Y_STRIDE + (block.column + n) * Y_WITHIN;
    store_y(pc.y, at, result_of(block.section, t * block.rows + n, inputs));
}

void main() {
    uint token = gl_WorkGroupID.y * TILE_ROWS;
    Block block = block_of(gl_WorkGroupID.x);
    [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
        [[unroll]] for (uint i = 0u; i < 4u; ++i) sums[p][i] = vec4(0.0);
    }
#ifdef NORM
    for (uint turn = 0u; turn < TURNS; ++turn) squares[turn] = 0.0;
#endif
    for (uint k = 0u; k < COLUMNS; k += DEPTH) {
        load_left(token, k);
        [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
            load_right(block, p, k);
            barrier();
            tile_sums = sums[p];
            multiply_tiles();
            sums[p] = tile_sums;
            barrier();
        }
    }
#ifdef NORM
    find_norms();
#endif
    UNROLL for (uint i = 0u; i < 4u; ++i) {
        UNROLL for (uint j = 0u; j < 4u; ++j) {
            store_result(block, token, gl_LocalInvocationIndex / BROAD + i * HIGH, i, j);
        }
    }
}
