// Few tokens: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A row
// of invocations takes EACH rows of each matrix and sums over k for all tokens at once. Neighbouring
// invocations take neighbouring chunks of CHUNK values; each loads LOADS chunks of each row before it
// computes. Of x (with the norm's weight, if there is a norm) a tile lies in shared memory. Declared
// elsewhere: the arguments, Planes, Chunk and how chunks are loaded, how x is staged and multiplied, Inputs
// and the epilogue.

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
