// Attention by fragments whose order is hidden: keys, values, scores and weights lie row by row in shared memory, from where
// the cores load parts of fragments; of each of its rows a lane weighs VALUES neighbouring scores at a time.
const uint FOURS = HEAD_DIM / 4u;        // of a key
const uint VALUE_FOURS = VALUE_DIM / 4u; // and of a value
const uint POSITION_FOURS = POSITIONS / 4u;
const uint QUERY_PARTS = HEAD_DIM / PART_DEPTH; // parts along a query or key
const uint VALUE_PARTS = VALUE_DIM / PART_COLUMNS;
const uint VALUE_GRANULES = VALUE_DIM / 8u;
const uint VALUES_EACH = (POSITIONS * VALUE_GRANULES + THREADS - 1u) / THREADS;

shared f16vec4 keys[POSITIONS * FOURS];
shared f16vec4 values[POSITIONS * VALUE_FOURS];
// A subgroup's own: scores, later results; queries, later weights; factors by which results shrink.
shared float passed_floats[SUBGROUPS * FRAGMENT * POSITIONS];
shared f16vec4 passed_halves[SUBGROUPS * FRAGMENT * POSITION_FOURS];
shared float passed_factors[SUBGROUPS * FRAGMENT * FRAGMENT];

uvec4 next_values[VALUES_EACH];

A_FRAGMENT query[ROW_PARTS * QUERY_PARTS];
SUMS mixed[ROW_PARTS * VALUE_PARTS];

uint floats_at() { return gl_SubgroupID * FRAGMENT * POSITIONS; }
uint halves_at() { return gl_SubgroupID * FRAGMENT * POSITION_FOURS; }
uint factors_at() { return gl_SubgroupID * FRAGMENT * FRAGMENT; }
uint row_of(uint slot) { return slot * ROWS_EACH + lane_row(); }

void load_query(uint first, uint head) {
    [[unroll]] for (uint i = 0u; i < ROW_PARTS * VALUE_PARTS; ++i) mixed[i] = SUMS(0.0);
    float scale = pc.scale * LOG2_E;
    [[unroll]] for (uint depth = 0u; depth < HEAD_DIM / FRAGMENT; ++depth) {
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            vec4 low, high;
            load8_q(pc.q, query_at(first, slot, head) + depth * FRAGMENT + lane_part() * 8u, low, high);
            uint at = halves_at() + row_of(slot) * FRAGMENT / 4u + lane_part() * 2u;
            passed_halves[at] = f16vec4(clamp(low * scale, -65504.0, 65504.0));
            passed_halves[at + 1u] = f16vec4(clamp(high * scale, -65504.0, 65504.0));
        }
        meet();
        [[unroll]] for (uint part = 0u; part < ROW_PARTS * DEPTH_PARTS; ++part) {
            uint row = part / DEPTH_PARTS;
            uint column = part % DEPTH_PARTS;
            A_FRAGMENT own;
            uint at = halves_at() + (row * PART_ROWS * FRAGMENT + column * PART_DEPTH) / 4u;
            coopMatLoad(own, passed_halves, at, FRAGMENT / 4u, gl_CooperativeMatrixLayoutRowMajor);
            query[row * QUERY_PARTS + depth * DEPTH_PARTS + column] = own;
        }
        meet();
    }
}

void load_values(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        uint row = min(slot + min(number / VALUE_GRANULES, uint(last)), pc.slots - 1u);
        next_values[i] = pc.values.at[(row * pc.kv_heads + kv_head) * VALUE_GRANULES + number % VALUE_GRANULES];
    }
}

void store_block() {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (number < POSITIONS * GRANULES) {
            keys[2u * number] = four_of(next_keys[i].x, next_keys[i].y);
            keys[2u * number + 1u] = four_of(next_keys[i].z, next_keys[i].w);
        }
    }
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (number < POSITIONS * VALUE_GRANULES) {
            values[2u * number] = four_of(next_values[i].x, next_values[i].y);
            values[2u * number + 1u] = four_of(next_values[i].z, next_values[i].w);
        }
    }
}

// Queries times keys.
void find_scores() {
    [[unroll]] for (uint column = 0u; column < POSITIONS / PART_COLUMNS; ++column) {
        SUMS scores[ROW_PARTS];
        [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) scores[row] = SUMS(0.0);
        [[unroll]] for (uint depth = 0u; depth < QUERY_PARTS; ++depth) {
            B_FRAGMENT key;
            uint at = column * PART_COLUMNS * FOURS + depth * PART_DEPTH / 4u;
            coopMatLoad(key, keys, at, FOURS, gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
                scores[row] = coopMatMulAdd(query[row * QUERY_PARTS + depth], key, scores[row]);
            }
        }
        [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
            uint at = floats_at() + row * PART_ROWS * POSITIONS + column * PART_COLUMNS;
            coopMatStore(scores[row], passed_floats, at, POSITIONS, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
}

// Weights in place of scores, relative to the largest so far, and the factor by which what was added before shrinks.
void weigh(uint current, int base, bool whole) {
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float scores[TILES * VALUES];
        float top = maximum[r];
        [[unroll]] for (uint i = 0u; i < TILES * VALUES; ++i) {
            uint column = i / VALUES * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES);
            scores[i] = passed_floats[floats_at() + row_of(r) * POSITIONS + column];
            if (!whole && !sees(r, current, base + int(column))) scores[i] = MASKED;
            top = max(top, scores[i]);
        }
        top = join_max(top);
        float kept = exp2(maximum[r] - top);
        maximum[r] = top;
        total[r] *= kept;
        [[unroll]] for (uint i = 0u; i < TILES * VALUES; i += 4u) {
            vec4 weights;
            [[unroll]] for (uint j = 0u; j < 4u; ++j) weights[j] = exp2(scores[i + j] - top);
            total[r] += (weights.x + weights.y) + (weights.z + weights.w);
            uint column = i / VALUES * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES);
            passed_halves[halves_at() + row_of(r) * POSITION_FOURS + column / 4u] = f16vec4(weights);
        }
        [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
            passed_factors[factors_at() + row_of(r) * FRAGMENT + COLUMN_OF(lane_part(), v)] = kept;
        }
    }
}

// Adds the block's values, weighted.
void mix() {
    [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
        SUMS factor;
        uint at = factors_at() + row * PART_ROWS * FRAGMENT;
        coopMatLoad(factor, passed_factors, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint n = 0u; n < VALUE_PARTS; ++n) mixed[row * VALUE_PARTS + n] = mixed[row * VALUE_PARTS + n] * factor;
    }
    [[unroll]] for (uint depth = 0u; depth < POSITIONS / PART_DEPTH; ++depth) {
        A_FRAGMENT weights[ROW_PARTS];
        [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
            uint at = halves_at() + row * PART_ROWS * POSITION_FOURS + depth * PART_DEPTH / 4u;
            coopMatLoad(weights[row], passed_halves, at, POSITION_FOURS, gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint n = 0u; n < VALUE_PARTS; ++n) {
            B_FRAGMENT value;
            uint at = depth * PART_DEPTH * VALUE_FOURS + n * PART_COLUMNS / 4u;
            coopMatLoad(value, values, at, VALUE_FOURS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
                mixed[row * VALUE_PARTS + n] = coopMatMulAdd(weights[row], value, mixed[row * VALUE_PARTS + n]);
            }
        }
    }
}

void attend(uint current, int base, bool whole) {
    find_scores();
    meet();
    weigh(current, base, whole);
    meet();
    mix();
}

void store_rows(uint first, uint head, float factors[SLOTS]) {
    [[unroll]] for (uint block = 0u; block < VALUE_DIM / FRAGMENT; ++block) {
        meet();
        [[unroll]] for (uint part = 0u; part < SUM_PARTS; ++part) {
            uint row = part / COLUMN_PARTS;
            uint column = part % COLUMN_PARTS;
            uint at = floats_at() + row * PART_ROWS * FRAGMENT + column * PART_COLUMNS;
            SUMS sums = mixed[row * VALUE_PARTS + block * COLUMN_PARTS + column];
            coopMatStore(sums, passed_floats, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
        }
        meet();
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            uint token = first + row_of(r);
            if (token >= pc.tokens) continue;
            uint to = token * pc.y_strides.x + head * pc.y_strides.y + block * FRAGMENT + lane_part() * 8u;
            [[unroll]] for (uint i = 0u; i < 8u; i += 4u) {
                vec4 results;
                [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                    results[j] = passed_floats[floats_at() + row_of(r) * FRAGMENT + lane_part() * 8u + i + j] * factors[r];
                }
                store4_y(pc.y, to + i, results);
            }
        }
    }
}
