// A workgroup's invocations take each tile together: SUBS of them share a position's key, and a row of them finds the
// weights of a head.
layout(constant_id = 9) const uint SUBS = 4;

// Units of a key per invocation.
const uint KEY_UNITS = (UNITS + SUBS - 1u) / SUBS;

shared float partial_scores[HEADS * TILE * SUBS];
shared float shrinks[HEADS];

UNIT_TYPE keys[KEY_UNITS];

DEFINE_COMBINE(max_lanes, max, subgroupMax)

bool is_own(uint position) { return has_own && position == own_position; }

// The token's own key and value are not in the cache yet; what is loaded for them is ignored. Skipping these loads
// would stall on the page table.
void load_keys(uint base, uint page) {
    uint at = slot_of(page, min(base + gl_LocalInvocationIndex / SUBS, end - 1u)) * ROW_UNITS(UNITS);
    [[unroll]] for (uint i = 0u; i < KEY_UNITS; ++i) {
        uint unit = gl_LocalInvocationIndex % SUBS + i * SUBS;
        if (unit < UNITS) keys[i] = LOAD_UNIT(pc.keys, HEAD_DIM, at, unit);
    }
}

void load_values(uint base, uint page) {
    UNROLL for (uint step = 0u; step < VALUE_STEPS; ++step) {
        uint at = slot_of(page, min(base + gl_LocalInvocationIndex / COLUMNS + step * GROUPS, end - 1u)) * ROW_UNITS(VALUE_UNITS);
        [[unroll]] for (uint s = 0u; s < SPAN; ++s) {
            uint unit = gl_LocalInvocationIndex % COLUMNS + s * COLUMNS;
            if (unit < VALUE_UNITS) values[step * SPAN + s] = LOAD_UNIT(pc.values, VALUE_DIM, at, unit);
        }
    }
}

void score(uint base) {
    uint position = min(base + gl_LocalInvocationIndex / SUBS, end - 1u);
    vec2 products[HEADS];
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) products[h] = vec2(0.0);
    UNROLL for (uint i = 0u; i < KEY_UNITS; ++i) {
        uint unit = gl_LocalInvocationIndex % SUBS + i * SUBS;
        if (unit >= UNITS) break;
        // Two pairs at a time, so that a query's four values are one load.
        [[unroll]] for (uint j = 0u; j < PAIRS; j += 2u) {
            uint own = HEADS * HEAD_DIM + unit * UNIT + 2u * j;
            vec2 first = unit_pair(keys[i], j);
            vec2 second = unit_pair(keys[i], min(j + 1u, PAIRS - 1u));
            if (is_own(position)) first = vec2(vectors[own], vectors[own + 1u]);
            if (PAIRS > 1u && is_own(position)) second = vec2(vectors[own + 2u], vectors[own + 3u]);
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                uint at = h * HEAD_DIM + unit * UNIT + 2u * j;
                products[h] += first * vec2(vectors[at], vectors[at + 1u]);
                if (PAIRS > 1u) products[h] += second * vec2(vectors[at + 2u], vectors[at + 3u]);
            }
        }
    }
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        partial_scores[h * THREADS + gl_LocalInvocationIndex] = products[h].x + products[h].y;
    }
}

// Computes the tile's weights relative to the largest score so far (online softmax). A row of invocations takes a head.
void find_weights(uint base) {
    for (uint row = 0u; row < HEADS; row += ROWS) {
        uint h = min(row + row_in_group(), HEADS - 1u);
        float largest = maxima[h];
        for (uint p = lane(); p < TILE; p += LANES) {
            float sum = 0.0;
            for (uint s = 0u; s < SUBS; ++s) sum += partial_scores[h * THREADS + p * SUBS + s];
            sum = base + p < end ? bounded(sum * SCALE) : MASKED;
            if (row + row_in_group() < HEADS) weights[h * TILE + p] = sum;
            largest = max(largest, sum);
        }
        largest = max_lanes(largest);
        float sum = 0.0;
        if (row + row_in_group() < HEADS) {
            for (uint p = lane(); p < TILE; p += LANES) {
                float weight = base + p < end ? weight_of(weights[h * TILE + p], largest) : 0.0;
                weights[h * TILE + p] = weight;
                sum += weight;
            }
        }
        sum = sum_lanes(sum);
        if (lane() == 0u && row + row_in_group() < HEADS) {
            shrinks[h] = weight_of(maxima[h], largest);
            totals[h] = totals[h] * shrinks[h] + sum;
            maxima[h] = largest;
        }
    }
}

void add_values(uint base) {
    uint group = gl_LocalInvocationIndex / COLUMNS;
    if (group >= GROUPS) return;
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        [[unroll]] for (uint j = 0u; j < SPAN * PAIRS; ++j) sums[h * SPAN * PAIRS + j] *= shrinks[h];
    }
    UNROLL for (uint step = 0u; step < VALUE_STEPS; ++step) {
        uint p = group + step * GROUPS;
        if (p >= TILE) break;
        uint position = min(base + p, end - 1u);
        [[unroll]] for (uint s = 0u; s < SPAN; ++s) {
            uint unit = gl_LocalInvocationIndex % COLUMNS + s * COLUMNS;
            if (unit >= VALUE_UNITS) break;
            [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
                uint own = (HEADS + 1u) * HEAD_DIM + unit * UNIT + 2u * j;
                vec2 value = unit_pair(values[step * SPAN + s], j);
                if (is_own(position)) value = vec2(vectors[own], vectors[own + 1u]);
                [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                    sums[(h * SPAN + s) * PAIRS + j] += weights[h * TILE + p] * value;
                }
            }
        }
    }
}

void attend() {
    for (uint base = first; base < end; base += TILE) {
        uint page = page_of_tile(base + TILE);
        score(base);
        // Prefetches the next tile. After the last one it loads the last position again, since a branch would stall.
        load_keys(base + TILE, page);
        barrier();
        find_weights(base);
        barrier();
        add_values(base);
        load_values(base + TILE, page);
    }
}
