// Few tokens: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A row
// of invocations takes EACH rows of each matrix and sums over k for all tokens at once. Neighbouring
// invocations take neighbouring chunks of CHUNK values; each loads LOADS chunks of each row before it
// computes. Of x (with the norm's weight, if there is a norm) a tile lies in shared memory, in an order
// in which neighbouring invocations read neighbouring words. Declared elsewhere: the arguments, Planes,
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
shared float row_squares[VECTORS * ROWS];

// This invocation's part of the sum over x[t]², once all of x was staged for the first time.
float squares[VECTORS];
// 1 / sqrt(mean(x[t]²) + eps): the sums are multiplied by it, not x.
float inverse_norms[VECTORS];

vec4 with_gain(vec4 quad, uint k) {
#ifdef GAIN
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        if (k + i < COLUMNS) quad[i] *= load_gain(pc.gain, k + i);
    }
#endif
    return quad;
}

// To be called once all of x was staged; each workgroup computes the norms for itself.
void find_norms() {
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        float row = sum_lanes(squares[t]);
        if (lane() == 0u) row_squares[t * ROWS + row_in_group()] = row;
    }
    barrier();
    UNROLL for (uint t = 0u; t < VECTORS; ++t) {
        float total = 0.0;
        for (uint r = 0u; r < ROWS; ++r) total += row_squares[t * ROWS + r];
        inverse_norms[t] = 1.0 / sqrt(total / float(COLUMNS) + uintBitsToFloat(EPS));
    }
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
            squares[t] += dot(quad, quad);
            quad = with_gain(quad, k);
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
            [[unroll]] for (uint p = 0u; p < PARTS; ++p) {
                totals[p] = sum_lanes(sums[r * PARTS + p][t]);
#ifdef NORM
                totals[p] *= inverse_norms[t];
#endif
            }
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
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) squares[t] = 0.0;
    bool has_norms = false;
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
#ifdef NORM
        if (!has_norms) find_norms();
        has_norms = true;
#endif
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
