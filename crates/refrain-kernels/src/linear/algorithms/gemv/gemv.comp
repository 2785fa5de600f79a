// Small-M GEMV: y[t, n] = epilogue(sum over k of x[t, k] * w[n, k], for each of PARTS matrices w). A row of invocations
// (a subgroup) computes EACH rows of each matrix for all tokens. Consecutive invocations load consecutive chunks of
// CHUNK values; each loads LOADS chunks of each row ahead. A tile of x (with the norm's weight applied) is in shared
// memory. ONE_BLOCK says that each workgroup has one block of rows, ONE_PASS that the first loads cover all of k; the
// loops are then not compiled. The text before this one declares the arguments, Planes, Chunk with its functions,
// staging of x, Inputs and the epilogue.

// Position of a workgroup: chunks of a tile, and rows of a block.
struct Place {
    uint number, row, first, start;
    Block block;
};

#ifndef ROUTED
Chunk load_row(Planes planes, uint row, uint number) { return load_chunk(planes, row, number); }
float sum_of_expert(float sum) { return sum; }
#endif

// Results of a block that a lane finishes.
const uint ENDS = (EACH * VECTORS + LANES - 1u) / LANES;

uint chunk_count() { return (X_COLUMNS + CHUNK - 1u) / CHUNK; }

// Number of chunks of the tile.
uint tile_count(Place place) { return min(TILE, chunk_count() - place.first); }

void enter(inout Place place, uint number) {
    place.number = number;
    place.block = block_of(number);
    place.row = place.block.row + row_in_group() * EACH;
    place.first = 0u;
    place.start = 0u;
}

// Advances to the next chunks. Returns whether the sums of the block's rows are complete.
bool advance(inout Place place) {
#ifdef ONE_PASS
    return true;
#endif
    place.start += LANES * LOADS;
    if (place.start < tile_count(place)) return false;
    place.start = 0u;
    place.first += TILE;
    if (place.first < chunk_count()) return false;
#ifndef ONE_BLOCK
    enter(place, place.number + gl_NumWorkGroups.x * gl_NumWorkGroups.y);
#endif
    return true;
}

void load_chunks(Place place, out Chunk chunks[LOADS][MATRICES]) {
#ifndef EMPTY
    [[unroll]] for (uint l = 0u; l < LOADS; ++l) {
        uint c = place.first + min(place.start + lane() + l * LANES, tile_count(place) - 1u);
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            uint n = min(place.row + m / PARTS, place.block.rows - 1u);
            chunks[l][m] = load_row(planes_of(place.block.section, m % PARTS), n, c);
        }
    }
#endif
}

void add(Place place, Chunk chunks[LOADS][MATRICES]) {
    UNROLL for (uint l = 0u; l < LOADS; ++l) {
        uint c = place.start + lane() + l * LANES;
        if (c < tile_count(place)) add_chunks(c, chunks[l]);
    }
}

// Finishes the results of rows row … row + EACH - 1, one per lane: an epilogue is longer code than the reductions, so
// it is compiled once.
void finish(Block block, uint row, Inputs inputs[ENDS]) {
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            sums[m][t] = sum_of_expert(sum_lanes(sums[m][t]));
#ifdef NORM
            sums[m][t] *= inverse_norms[t];
#endif
        }
    }
    [[unroll]] for (uint i = 0u; i < ENDS; ++i) {
        uint end = lane() + i * LANES;
        uint r = end % EACH, own = end / EACH;
        float totals[PARTS];
        [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                if (end == t * EACH + m / PARTS) totals[m % PARTS] = sums[m][t];
            }
        }
        if (own >= VECTORS || row + r >= block.rows) continue;
        uint at = y_at + own * Y_STRIDE + (block.column + row + r) * Y_WITHIN;
        uint element = own * block.rows + row + r;
        float result = result_of(block.section, element, with_sums(inputs[i], totals));
        store_y(pc.y, at, result);
#ifdef CHOICE
        if (block.section == CHOICE) store_key(own, row + r, result);
#endif
    }
}

// Loads the epilogue's extra inputs for each row, and clears the accumulators.
void begin(Place place, out Inputs inputs[ENDS]) {
    [[unroll]] for (uint i = 0u; i < ENDS; ++i) {
        uint end = lane() + i * LANES;
        uint row = min(place.row + end % EACH, place.block.rows - 1u);
        inputs[i] = load_inputs(place.block.section, t_at + min(end / EACH, VECTORS - 1u), row);
    }
    [[unroll]] for (uint m = 0u; m < MATRICES; ++m) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) sums[m][t] = 0.0;
    }
}

void run_batch() {
    uint blocks = block_count();
    Place place;
    enter(place, group_number());
    if (place.number >= blocks) return;
#ifdef NORM
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) squares[t] = 0.0;
    bool has_norms = false;
#endif
    // The first loads of weights overlap the staging of x.
    Chunk chunks[LOADS][MATRICES];
    load_chunks(place, chunks);
    Inputs inputs[ENDS];
    begin(place, inputs);
#ifdef SEGMENT
    weigh_experts();
#endif
    Place now;
    uint staged = ~0u;
    while (true) {
        if (staged != place.first) stage(place.first);
        staged = place.first;
        add(place, chunks);
        now = place;
        bool is_whole = advance(place);
#ifdef NORM
        if (is_whole && !has_norms) find_norms();
        has_norms = has_norms || is_whole;
#endif
#ifdef ONE_BLOCK
        if (is_whole) break;
#else
        if (place.number >= blocks) break;
#endif
        // Not inside a branch: compilers would wait for the loads at its end.
        load_chunks(place, chunks);
        if (is_whole) {
            finish(now.block, now.row, inputs);
            begin(place, inputs);
        }
    }
    finish(now.block, now.row, inputs);
}

void main() UNIFORM_FLOW {
#ifdef BATCHED
    for (uint batch = gl_WorkGroupID.z; batch < BATCHES; batch += gl_NumWorkGroups.z) {
        x_at = batch_offset(batch, X_OUTER, X_INNER);
        w_at = batch_offset(batch, W_OUTER, W_INNER);
        y_at = batch_offset(batch, Y_OUTER, Y_INNER);
        run_batch();
    }
#elif defined ROUTED
    for (uint number = gl_WorkGroupID.z; number < REPEATS; number += gl_NumWorkGroups.z) {
        enter_repetition(number);
        run_batch();
    }
#else
    run_batch();
#endif
#ifdef CHOICE
    choose();
#endif
}
