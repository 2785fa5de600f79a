// Attention with fragments whose element order is unknown. Keys, values, scores and weights lie row by row in shared
// memory, from where the matrix cores load parts of fragments. A lane computes the weights of VALUES neighbouring
// scores of each of its rows at a time.
const uint FOURS = HEAD_DIM / 4u;        // fours of a key
const uint VALUE_FOURS = VALUE_DIM / 4u; // fours of a value
const uint POSITION_FOURS = POSITIONS / 4u;
const uint QUERY_PARTS = HEAD_DIM / PART_DEPTH; // parts along a query or key
const uint VALUE_PARTS = VALUE_DIM / PART_COLUMNS;
const uint VALUE_GRANULES = VALUE_DIM / 8u;
const uint VALUES_EACH = (POSITIONS * VALUE_GRANULES + THREADS - 1u) / THREADS;

shared f16vec4 keys[POSITIONS * FOURS];
shared f16vec4 values[POSITIONS * VALUE_FOURS];
// Per subgroup: scores, later outputs; queries, later weights; factors by which outputs shrink.
shared float staged_floats[SUBGROUPS * FRAGMENT * POSITIONS];
shared f16vec4 staged_f16s[SUBGROUPS * FRAGMENT * POSITION_FOURS];
shared float staged_factors[SUBGROUPS * FRAGMENT * FRAGMENT];

VALUE_RUN next_values[VALUES_EACH];

A_FRAGMENT query[ROW_PARTS * QUERY_PARTS];
SUMS attn_out[ROW_PARTS * VALUE_PARTS];

uint floats_at() { return gl_SubgroupID * FRAGMENT * POSITIONS; }
uint f16s_at() { return gl_SubgroupID * FRAGMENT * POSITION_FOURS; }
uint factors_at() { return gl_SubgroupID * FRAGMENT * FRAGMENT; }
uint row_of(uint slot) { return slot * ROWS_EACH + lane_row(); }

void load_query(uint first, uint head) {
    [[unroll]] for (uint i = 0u; i < ROW_PARTS * VALUE_PARTS; ++i) attn_out[i] = SUMS(0.0);
    float scale = pc.scale * LOG2_E;
    [[unroll]] for (uint depth = 0u; depth < HEAD_DIM / FRAGMENT; ++depth) {
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            vec4 low, high;
            load8_q(pc.q, query_at(first, slot, head) + depth * FRAGMENT + lane_part() * 8u, low, high);
            uint at = f16s_at() + row_of(slot) * FRAGMENT / 4u + lane_part() * 2u;
            staged_f16s[at] = f16vec4(clamp(low * scale, -65504.0, 65504.0));
            staged_f16s[at + 1u] = f16vec4(clamp(high * scale, -65504.0, 65504.0));
        }
        meet();
        [[unroll]] for (uint part = 0u; part < ROW_PARTS * DEPTH_PARTS; ++part) {
            uint row = part / DEPTH_PARTS;
            uint column = part % DEPTH_PARTS;
            A_FRAGMENT own;
            uint at = f16s_at() + (row * PART_ROWS * FRAGMENT + column * PART_DEPTH) / 4u;
            coopMatLoad(own, staged_f16s, at, FRAGMENT / 4u, gl_CooperativeMatrixLayoutRowMajor);
            query[row * QUERY_PARTS + depth * DEPTH_PARTS + column] = own;
        }
        meet();
    }
}

void load_values(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        uint row = min(slot + min(number / VALUE_GRANULES, uint(last)), pc.slots - 1u);
        next_values[i] = LOAD_VALUE(row * pc.kv_heads + kv_head, number % VALUE_GRANULES);
    }
}

void store_block() {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (number < POSITIONS * GRANULES) {
            uvec4 halves = KEY_HALVES(next_keys[i]);
            keys[2u * number] = four_of(halves.x, halves.y);
            keys[2u * number + 1u] = four_of(halves.z, halves.w);
        }
    }
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (number < POSITIONS * VALUE_GRANULES) {
            uvec4 halves = VALUE_HALVES(next_values[i]);
            values[2u * number] = four_of(halves.x, halves.y);
            values[2u * number + 1u] = four_of(halves.z, halves.w);
        }
    }
}

// Computes queries times keys.
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
            coopMatStore(scores[row], staged_floats, at, POSITIONS, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
}

// Replaces scores by weights relative to the largest score so far; computes the factor by which earlier outputs shrink.
void find_weights(uint current, int base, bool whole) {
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float scores[TILES * VALUES];
        float top = maximum[r];
        [[unroll]] for (uint i = 0u; i < TILES * VALUES; ++i) {
            uint column = i / VALUES * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES);
            scores[i] = staged_floats[floats_at() + row_of(r) * POSITIONS + column];
            if (!whole && !sees(r, current, base + int(column))) scores[i] = MASKED;
            top = max(top, scores[i]);
        }
        top = row_max(top);
        float shrink = exp2(maximum[r] - top);
        maximum[r] = top;
        total[r] *= shrink;
        [[unroll]] for (uint i = 0u; i < TILES * VALUES; i += 4u) {
            vec4 weights;
            [[unroll]] for (uint j = 0u; j < 4u; ++j) weights[j] = exp2(scores[i + j] - top);
            total[r] += (weights.x + weights.y) + (weights.z + weights.w);
            uint column = i / VALUES * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES);
            staged_f16s[f16s_at() + row_of(r) * POSITION_FOURS + column / 4u] = f16vec4(weights);
        }
        [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
            staged_factors[factors_at() + row_of(r) * FRAGMENT + COLUMN_OF(lane_part(), v)] = shrink;
        }
    }
}

// Adds the block's weighted values to attn_out.
void add_values() {
    [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
        SUMS factor;
        uint at = factors_at() + row * PART_ROWS * FRAGMENT;
        coopMatLoad(factor, staged_factors, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint n = 0u; n < VALUE_PARTS; ++n) attn_out[row * VALUE_PARTS + n] = attn_out[row * VALUE_PARTS + n] * factor;
    }
    [[unroll]] for (uint depth = 0u; depth < POSITIONS / PART_DEPTH; ++depth) {
        A_FRAGMENT weights[ROW_PARTS];
        [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
            uint at = f16s_at() + row * PART_ROWS * POSITION_FOURS + depth * PART_DEPTH / 4u;
            coopMatLoad(weights[row], staged_f16s, at, POSITION_FOURS, gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint n = 0u; n < VALUE_PARTS; ++n) {
            B_FRAGMENT value;
            uint at = depth * PART_DEPTH * VALUE_FOURS + n * PART_COLUMNS / 4u;
            coopMatLoad(value, values, at, VALUE_FOURS, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint row = 0u; row < ROW_PARTS; ++row) {
                attn_out[row * VALUE_PARTS + n] = coopMatMulAdd(weights[row], value, attn_out[row * VALUE_PARTS + n]);
            }
        }
    }
}

void attend(uint current, int base, bool whole) {
    find_scores();
    meet();
    find_weights(current, base, whole);
    meet();
    add_values();
}

void store_rows(uint first, uint head, float factors[SLOTS]) {
    [[unroll]] for (uint block = 0u; block < VALUE_DIM / FRAGMENT; ++block) {
        meet();
        [[unroll]] for (uint part = 0u; part < SUM_PARTS; ++part) {
            uint row = part / COLUMN_PARTS;
            uint column = part % COLUMN_PARTS;
            uint at = floats_at() + row * PART_ROWS * FRAGMENT + column * PART_COLUMNS;
            SUMS sums = attn_out[row * VALUE_PARTS + block * COLUMN_PARTS + column];
            coopMatStore(sums, staged_floats, at, FRAGMENT, gl_CooperativeMatrixLayoutRowMajor);
        }
        meet();
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            uint token = first + row_of(r);
            if (token >= pc.tokens) continue;
            uint to = token * pc.y_strides.x + head * pc.y_strides.y + block * FRAGMENT + lane_part() * 8u;
            [[unroll]] for (uint i = 0u; i < 8u; i += 4u) {
                vec4 results;
                [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                    results[j] = staged_floats[floats_at() + row_of(r) * FRAGMENT + lane_part() * 8u + i + j] * factors[r];
                }
                store4_y(pc.y, to + i, results);
            }
        }
    }
}
