// Each subgroup goes through positions of its own, with maxima of its own: nothing waits for the workgroup before the
// end. A group of COLUMNS invocations reads a position's key and value, STEPS positions of a tile.
const uint STEPS = TILE / GROUPS;
// Positions whose scores an invocation keeps, and invocations that keep the same ones.
const uint KEPT = (STEPS + COLUMNS - 1u) / COLUMNS;
const uint SHARED = (COLUMNS + STEPS - 1u) / STEPS;
// Weights are relative to a score that is at most this much smaller than the largest one, so that sums are seldom scaled.
const float SLACK = 8.0;

shared float subgroup_maxima[ROWS * HEADS], subgroup_totals[ROWS * HEADS];

UNIT_TYPE keys[STEPS];
vec2 queries[HEADS * PAIRS];
float scores[STEPS * HEADS];
// Of the subgroup, and of the positions that the invocation keeps.
float largest[HEADS], total[HEADS];

uint group() { return INVOCATION / COLUMNS; }
uint unit_of_group() { return INVOCATION % COLUMNS; }

// Row of the cache with position `number` of the tile from `base` on, or with the split's last one.
uint row_of(uint page, uint base, uint number) {
    if (HAS_ONE_PAGE) {
        uint start = min(page + base % PAGE_SIZE, SLOTS - 1u);
        uint last = min(end - 1u - base, SLOTS - 1u - start);
        return (start + min(number, last)) * KV_HEADS + kv_head;
    }
    return slot_of(page, min(base + number, end - 1u));
}

void load_keys(uint base, uint page) {
    UNROLL for (uint step = 0u; step < STEPS; ++step) {
        uint at = row_of(page, base, group() + step * GROUPS) * ROW_UNITS(UNITS);
        keys[step] = LOAD_UNIT(pc.keys, HEAD_DIM, at, unit_of_group());
    }
}

void load_values(uint base, uint page) {
    UNROLL for (uint step = 0u; step < STEPS; ++step) {
        uint at = row_of(page, base, group() + step * GROUPS) * ROW_UNITS(UNITS);
        values[step] = LOAD_UNIT(pc.values, HEAD_DIM, at, unit_of_group());
    }
}

#ifdef FIXED_QUERIES
// In fixed_queries.glsl.
void fix_queries();
#endif

// Begins with the token's own position in one subgroup, and with none in the others.
void begin() {
    uint unit = unit_of_group() * UNIT;
    [[unroll]] for (uint i = 0u; i < HEADS * PAIRS; ++i) {
        uint at = i / PAIRS * HEAD_DIM + unit + i % PAIRS * 2u;
        queries[i] = vec2(vectors[at], vectors[at + 1u]);
    }
    bool has = has_own && row_in_group() == 0u;
    uint own = HEADS * HEAD_DIM + unit;
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        vec2 products = vec2(0.0);
        [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
            uint at = own + 2u * j;
            products += queries[h * PAIRS + j] * vec2(vectors[at], vectors[at + 1u]);
            at += HEAD_DIM;
            vec2 value = vec2(vectors[at], vectors[at + 1u]);
            sums[h * PAIRS + j] = has && group() == 0u ? value : vec2(0.0);
        }
        float score = products.x + products.y;
        [[unroll]] for (uint apart = COLUMNS / 2u; apart > 0u; apart /= 2u) score += subgroupShuffleXor(score, apart);
        largest[h] = has ? bounded(score * SCALE) : MASKED;
        total[h] = has && lane() == 0u ? float(SHARED) : 0.0;
    }
#ifdef FIXED_QUERIES
    fix_queries();
#endif
}

// Finds the parts of the scores that the invocation's units of the keys make.
#ifdef FIXED_QUERIES
// In fixed_queries.glsl.
void score();
#else
void score() {
    UNROLL for (uint step = 0u; step < STEPS; ++step) {
        vec2 products[HEADS];
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) products[h] = vec2(0.0);
        [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
            vec2 key = unit_quants(keys[step], j);
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) products[h] += key * queries[h * PAIRS + j];
        }
        float scale = UNIT_SCALE(keys[step]);
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) scores[step * HEADS + h] = (products[h].x + products[h].y) * scale;
    }
}
#endif

// Sums the scores over a group. Each exchange halves the positions that an invocation keeps, down to one.
void sum_scores() {
    [[unroll]] for (uint apart = COLUMNS / 2u; apart > 0u; apart /= 2u) {
        uint kept = STEPS * apart / COLUMNS;
        if (kept > 0u) {
            bool upper = (lane() & apart) != 0u;
            [[unroll]] for (uint i = 0u; i < kept * HEADS; ++i) {
                float a = scores[i], b = scores[i + kept * HEADS];
                scores[i] = (upper ? b : a) + subgroupShuffleXor(upper ? a : b, apart);
            }
        } else {
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) scores[h] += subgroupShuffleXor(scores[h], apart);
        }
    }
}

// Number in the tile of a position that the invocation keeps.
uint kept_position(uint i) { return group() + (unit_of_group() / SHARED * KEPT + i) * GROUPS; }

// Raises the subgroup's maxima to the kept scores, and scales what was summed so far.
void raise_maxima() {
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float raised = largest[h];
        [[unroll]] for (uint i = 0u; i < KEPT; ++i) raised = max(raised, scores[i * HEADS + h]);
        raised = subgroupMax(raised);
        float shrink = weight_of(largest[h], raised);
        total[h] *= shrink;
        [[unroll]] for (uint j = 0u; j < PAIRS; ++j) sums[h * PAIRS + j] *= shrink;
        largest[h] = raised;
    }
}

void find_weights(uint base) {
    bool exceeds = false;
    [[unroll]] for (uint i = 0u; i < KEPT * HEADS; ++i) {
        bool exists = base + kept_position(i / HEADS) < end;
        scores[i] = exists ? bounded(scores[i] * SCALE) : MASKED;
        exceeds = exceeds || scores[i] > largest[i % HEADS] + SLACK;
    }
    if (subgroupOr(exceeds ? 1u : 0u) != 0u) raise_maxima();
    // Those of the tile before have been read.
    subgroupBarrier();
    [[unroll]] for (uint i = 0u; i < KEPT * HEADS; ++i) {
        float weight = scores[i] > MASKED ? weight_of(scores[i], largest[i % HEADS]) : 0.0;
        total[i % HEADS] += weight;
        weights[kept_position(i / HEADS) * HEADS + i % HEADS] = weight;
    }
    subgroupBarrier();
}

void add_values() {
    UNROLL for (uint step = 0u; step < STEPS; ++step) {
        uint at = (group() + step * GROUPS) * HEADS;
        float scale = UNIT_SCALE(values[step]);
        float scaled[HEADS];
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) scaled[h] = weights[at + h] * scale;
        [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
            vec2 value = unit_quants(values[step], j);
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) sums[h * PAIRS + j] += scaled[h] * value;
        }
    }
}

// Makes what the subgroups summed relative to the workgroup's maxima.
void join_subgroups() {
    uint own = row_in_group() * HEADS;
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float all = subgroupAdd(total[h]) / float(SHARED);
        if (lane() == 0u) {
            subgroup_maxima[own + h] = largest[h];
            subgroup_totals[own + h] = all;
        }
    }
    barrier();
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float joined = MASKED;
        float all = 0.0;
        for (uint row = 0u; row < ROWS; ++row) joined = max(joined, subgroup_maxima[row * HEADS + h]);
        for (uint row = 0u; row < ROWS; ++row) {
            all += subgroup_totals[row * HEADS + h] * weight_of(subgroup_maxima[row * HEADS + h], joined);
        }
        float shrink = weight_of(largest[h], joined);
        [[unroll]] for (uint j = 0u; j < PAIRS; ++j) sums[h * PAIRS + j] *= shrink;
        if (gl_LocalInvocationIndex == 0u) {
            maxima[h] = joined;
            totals[h] = all;
        }
    }
}

void attend() {
    begin();
    // A tile's page is known before its loads begin.
    uint page = first < end ? page_of_tile(first + TILE) : 0u;
    uint last_tile = first + (max(end, first + 1u) - 1u - first) / TILE * TILE;
    for (uint base = first; base < end; base += TILE) {
        uint page_after = page_of_tile(base + 2u * TILE);
        // The next tile is loaded ahead. After the last one it is loaded again, since a branch would stall.
        uint next = min(base + TILE, last_tile);
        score();
        load_keys(next, page);
        sum_scores();
        find_weights(base);
        add_values();
        load_values(next, page);
        page = page_after;
    }
    join_subgroups();
}
