// Tiled GEMM without matrix cores: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A
// workgroup computes a tile of tokens and rows. The next tiles of x and w are loaded to registers during the products
// of the present ones, and stored to shared memory after them (software pipelining). The text before this one declares
// the tiles, the arguments, Planes, Chunk with its functions, loads of x, Inputs and the epilogue.
const uint QUADS = CHUNK / 4u;
const uint K_FOURS = DEPTH / 4u;
// X_TURNS is the number of vec4s of x that an invocation loads per tile; they are X_BETWEEN rows apart.
const uint X_BETWEEN = THREADS / K_FOURS;
const uint X_TURNS = TILE_ROWS / X_BETWEEN;
const uint CHUNKS = DEPTH / CHUNK;
const uint W_TURNS = (TILE_COLUMNS * CHUNKS + THREADS - 1u) / THREADS;

vec4 next_x[X_TURNS];
#ifdef NORM_WEIGHT
vec4 next_weights; // shared by all rows
#endif
StoredChunk next_w[W_TURNS];

#ifdef NORM
// Sums of squares of the values that this invocation loads.
float squares[X_TURNS];
// 1 / sqrt(mean(x[t]²) + eps). It multiplies the sums instead of x.
shared float inverse_norms[TILE_ROWS];
#endif

// Two consecutive invocations load 32 bytes of a row, one memory sector. Sixteen rows are stored to different banks.
uint x_four() { return gl_LocalInvocationIndex / 32u % (K_FOURS / 2u) * 2u + gl_LocalInvocationIndex % 2u; }
uint x_row(uint turn) {
    uint sixteen = gl_LocalInvocationIndex / (16u * K_FOURS);
    return turn * X_BETWEEN + sixteen * 16u + gl_LocalInvocationIndex / 2u % 16u;
}

// Loads are clamped: results beyond the last token or row are not stored. Beyond the last k, x is zero and w holds
// finite values of the row.
void load_next(Block block, uint token, uint k) {
    [[unroll]] for (uint turn = 0u; turn < X_TURNS; ++turn) {
        next_x[turn] = load_quad(min(token + x_row(turn), TOKENS - 1u), k + 4u * x_four());
    }
#ifdef NORM_WEIGHT
    next_weights = load_norm_weights(k + 4u * x_four());
#endif
    [[unroll]] for (uint turn = 0u; turn < W_TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * THREADS;
        uint number = min(k / CHUNK + e % CHUNKS, (COLUMNS - 1u) / CHUNK);
        uint n = min(block.row + e / CHUNKS % ROWS, block.rows - 1u);
        next_w[turn] = load_stored(planes_of(block.section, e / CHUNKS / ROWS), n, number);
    }
}

void store_x() {
    [[unroll]] for (uint turn = 0u; turn < X_TURNS; ++turn) {
        vec4 quad = next_x[turn];
#ifdef NORM
        squares[turn] += dot(quad, quad);
#endif
#ifdef NORM_WEIGHT
        quad *= next_weights;
#endif
        uint at = left_at(4u * x_four(), x_row(turn));
        [[unroll]] for (uint i = 0u; i < 4u; ++i) tiles[at + i * LEFT_LINE][x_row(turn) % 4u] = quad[i];
    }
}

void store_w() {
    [[unroll]] for (uint turn = 0u; turn < W_TURNS; ++turn) {
        uint e = gl_LocalInvocationIndex + turn * THREADS;
        if (e < TILE_COLUMNS * CHUNKS) {
            uint at = right_at(e % CHUNKS * CHUNK, e / CHUNKS);
            Chunk chunk = chunk_of(next_w[turn]);
            UNROLL for (uint q = 0u; q < QUADS; ++q) {
                vec4 quad = chunk_quad(chunk, q);
                [[unroll]] for (uint i = 0u; i < 4u; ++i) {
                    float value = chunk_sum(chunk, q * TERMS / QUADS, quad[i], 1.0);
                    tiles[at + (4u * q + i) * RIGHT_LINE][e / CHUNKS % 4u] = value;
                }
            }
        }
    }
}

#ifdef NORM
// Adds up the squares of each token through the memory of the tiles. The sums go to inverse_norms.
void add_squares() {
    [[unroll]] for (uint turn = 0u; turn < X_TURNS; ++turn) {
        tiles[left_at(x_four(), x_row(turn))][x_row(turn) % 4u] = squares[turn];
    }
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < TILE_ROWS; t += THREADS) {
        float total = 0.0;
        for (uint four = 0u; four < K_FOURS; ++four) total += tiles[left_at(four, t)][t % 4u];
        inverse_norms[t] = total;
    }
}

// Computes the norms, once the sums of squares cover all of x.
void find_norms() {
    for (uint t = gl_LocalInvocationIndex; t < TILE_ROWS; t += THREADS) {
        inverse_norms[t] = 1.0 / sqrt(inverse_norms[t] / float(COLUMNS) + uintBitsToFloat(EPS));
    }
    barrier();
}
#endif

#if K_SPLITS > 1
// Split-K reduction. Returns true in the last workgroup of the tile, which then holds the sums (and squares) of all
// splits.
bool reduce_splits() {
    store_partial_sums();
#ifdef NORM
    for (uint t = gl_LocalInvocationIndex; t < TILE_ROWS; t += THREADS) {
        pc.partial_sums.at[partial_squares_at(k_split(), t)] = vec4(inverse_norms[t]);
    }
#endif
    if (!arrives_last()) return false;
    add_sums();
#ifdef NORM
    for (uint t = gl_LocalInvocationIndex; t < TILE_ROWS; t += THREADS) {
        float total = 0.0;
        for (uint part = 0u; part < uint(K_SPLITS); ++part) total += pc.partial_sums.at[partial_squares_at(part, t)].x;
        inverse_norms[t] = total;
    }
#endif
    return true;
}
#endif

void store_result(Block block, uint t, uint n, float totals[PARTS]) {
    if (n >= block.rows) return;
    Inputs inputs = with_sums(load_inputs(block.section, t, n), totals);
    uint at = t * Y_STRIDE + (block.column + n) * Y_WITHIN;
    store_y(pc.y, at, result_of(block.section, t * block.rows + n, inputs));
}

// Stores row i of this invocation's register tile.
void store_row(Block block, uint token, uint i) {
    uint t = token + tile_row(i);
    if (t >= TOKENS) return;
    vec4 sums[COLUMN_FOURS];
    row_sums(i, sums);
#ifdef NORM
    [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) sums[j] *= inverse_norms[tile_row(i)];
#endif
    // Each matrix has the same number of vec4s.
    const uint fours = COLUMN_FOURS / PARTS;
    [[unroll]] for (uint j = 0u; j < fours; ++j) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            float totals[PARTS];
            [[unroll]] for (uint p = 0u; p < PARTS; ++p) totals[p] = sums[p * fours + j][c];
            store_result(block, t, block.row + tile_column(j) + c, totals);
        }
    }
}

void main() {
    uint token = gl_WorkGroupID.y * TILE_ROWS;
    Block block = block_of(gl_WorkGroupID.x / uint(K_SPLITS));
    uint steps = (COLUMNS + DEPTH - 1u) / DEPTH;
    uint begin = steps * k_split() / uint(K_SPLITS) * DEPTH;
    uint end = steps * (k_split() + 1u) / uint(K_SPLITS) * DEPTH;
    clear_tile();
#ifdef NORM
    [[unroll]] for (uint turn = 0u; turn < X_TURNS; ++turn) squares[turn] = 0.0;
#endif
    if (begin < end) load_next(block, token, begin);
    for (uint k = begin; k < end; k += DEPTH) {
        store_x();
        store_w();
        barrier();
        // Also after the last tile, where loads are clamped: without a branch, compilers interleave loads with
        // products.
        load_next(block, token, k + DEPTH);
        multiply_tiles();
        barrier();
    }
    reduce_slices();
#ifdef NORM
    add_squares();
#endif
#if K_SPLITS > 1
    if (!reduce_splits()) return;
#endif
#ifdef NORM
    find_norms();
#endif
    for (uint i = slice(); i < OWN_ROWS; i += SLICES) store_row(block, token, i);
}
