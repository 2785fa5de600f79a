// Few tokens: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A row
// of invocations takes EACH rows of each matrix and sums over k for all tokens at once. Neighbouring
// invocations take neighbouring chunks of CHUNK values; each loads LOADS chunks of each row before it
// computes. Of x (normalised first, if there is a norm) a tile lies in shared memory, in an order in
// which neighbouring invocations read neighbouring words. Declared elsewhere: the arguments, Planes,
// Chunk and how chunks are loaded, Inputs and the epilogue.
const uint QUADS = CHUNK / 4u;
// Odd, so that quads of one chunk lie in different banks while they are stored.
const uint LINE = TILE | 1u;
const uint MATRICES = EACH * PARTS;

shared vec4 x_tile[VECTORS * QUADS * LINE];

float sums[MATRICES][VECTORS];

// Values k to k + 3 of x[t], zeros beyond the last.
vec4 load_quad(uint t, uint k) {
    uint at = x_at + t * X_STRIDE + k * X_WITHIN;
    vec4 quad = vec4(0.0);
#ifdef X_WIDE
    if (k < COLUMNS) load4_x(pc.x, at, quad);
#else
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < COLUMNS) quad[i] = load_x(pc.x, at + i * X_WITHIN);
    }
#endif
    return quad;
}

#ifdef NORM
shared float row_squares[ROWS];

// 1 / sqrt(mean(x[t]²) + eps): each workgroup computes it for itself.
float inverse_norms[VECTORS];

void find_norms() {
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        float squares = 0.0;
        for (uint k = 4u * gl_LocalInvocationIndex; k < COLUMNS; k += 4u * ROWS * LANES) {
            vec4 quad = load_quad(t, k);
            squares += dot(quad, quad);
        }
        squares = sum_lanes(squares);
        if (lane() == 0u) row_squares[row_in_group()] = squares;
        barrier();
        float total = 0.0;
        for (uint r = 0u; r < ROWS; ++r) total += row_squares[r];
        inverse_norms[t] = 1.0 / sqrt(total / float(COLUMNS) + uintBitsToFloat(EPS));
        barrier();
    }
}

vec4 normalised(vec4 quad, uint t, uint k) {
    quad *= inverse_norms[t];
#ifdef GAIN
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < COLUMNS) quad[i] *= load_gain(pc.gain, k + i);
    }
#endif
    return quad;
}
#endif

// Puts the tile of x whose first chunk is `first` into shared memory.
void stage(uint first) {
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        for (uint e = gl_LocalInvocationIndex; e < QUADS * TILE; e += ROWS * LANES) {
            uint k = first * CHUNK + 4u * e;
            vec4 quad = load_quad(t, k);
#ifdef NORM
            quad = normalised(quad, t, k);
#endif
            x_tile[(t * QUADS + e % QUADS) * LINE + e / QUADS] = quad;
        }
    }
    barrier();
}

// Adds the products of chunk `c` of the tile with each of the rows' chunks.
void add_chunks(uint c, Chunk chunks[MATRICES]) {
    [[unroll]] for (uint term = 0u; term < TERMS; ++term) {
        float products[MATRICES][VECTORS];
        float totals[VECTORS];
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            totals[t] = 0.0;
            [[unroll]] for (uint m = 0u; m < MATRICES; ++m) products[m][t] = 0.0;
        }
        UNROLL for (uint j = 0u; j < QUADS / TERMS; ++j) {
            uint number = term * (QUADS / TERMS) + j;
            vec4 w[MATRICES];
            [[unroll]] for (uint m = 0u; m < MATRICES; ++m) w[m] = chunk_quad(chunks[m], number);
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                vec4 x = x_tile[(t * QUADS + number) * LINE + c];
                totals[t] += dot(x, vec4(1.0));
                [[unroll]] for (uint m = 0u; m < MATRICES; ++m) products[m][t] += dot(x, w[m]);
            }
        }
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                sums[m][t] += chunk_sum(chunks[m], term, products[m][t], totals[t]);
            }
        }
    }
}

// Adds the products of the tile's `count` chunks, whose first is chunk `first`, with rows of `block`.
void add_tile(Block block, uint row, uint first, uint count) {
    for (uint base = lane(); base < count; base += LANES * LOADS) {
        Chunk chunks[LOADS][MATRICES];
        [[unroll]] for (uint l = 0u; l < LOADS; ++l) {
            uint c = first + min(base + l * LANES, count - 1u);
            [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
                uint n = min(row + m / PARTS, block.rows - 1u);
                chunks[l][m] = load_chunk(planes_of(block.section, m % PARTS), n, c);
            }
        }
        UNROLL for (uint l = 0u; l < LOADS; ++l) {
            if (base + l * LANES < count) add_chunks(base + l * LANES, chunks[l]);
        }
    }
}

// The results of rows row … row + EACH - 1, by the first lane.
void finish(Block block, uint row, Inputs inputs[EACH][VECTORS]) {
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            float totals[PARTS];
            [[unroll]] for (uint p = 0u; p < PARTS; ++p) totals[p] = sum_lanes(sums[r * PARTS + p][t]);
            if (lane() == 0u && row + r < block.rows) {
                uint at = y_at + t * Y_STRIDE + (block.column + row + r) * Y_WITHIN;
                store_y(pc.y, at, evaluate(t * block.rows + row + r, with_sums(inputs[r][t], totals)));
            }
        }
    }
}

void run_batch() {
    uint chunk_count = (COLUMNS + CHUNK - 1u) / CHUNK;
    uint staged = ~0u;
#ifdef NORM
    find_norms();
#endif
    uint blocks = block_count();
    uint groups = gl_NumWorkGroups.x * gl_NumWorkGroups.y;
    for (uint number = group_number(); number < blocks; number += groups) {
        Block block = block_of(number);
        uint row = block.row + row_in_group() * EACH;
        // What the epilogue reads is under way while the products are summed.
        Inputs inputs[EACH][VECTORS];
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                inputs[r][t] = load_inputs(block.section, t, min(row + r, block.rows - 1u));
                [[unroll]] for (uint p = 0u; p < PARTS; ++p) sums[r * PARTS + p][t] = 0.0;
            }
        }
        for (uint first = 0u; first < chunk_count; first += TILE) {
            if (staged != first) stage(first);
            staged = first;
            add_tile(block, row, first, min(TILE, chunk_count - first));
        }
        finish(block, row, inputs);
    }
}

void main() {
#ifdef BATCHED
    for (uint batch = gl_WorkGroupID.z; batch < BATCHES; batch += gl_NumWorkGroups.z) {
        x_at = batch_offset(batch, X_OUTER, X_INNER);
        w_at = batch_offset(batch, W_OUTER, W_INNER);
        y_at = batch_offset(batch, Y_OUTER, Y_INNER);
        run_batch();
    }
#else
    run_batch();
#endif
}
