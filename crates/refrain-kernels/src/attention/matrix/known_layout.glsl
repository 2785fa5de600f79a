// Attention with fragments whose element order is known, built in registers. Keys and values lie in shared memory in
// the order in which lanes take them. Each lane takes values of a head that are adjacent, whichever order of columns
// that makes: sums do not depend on it, and outputs are stored in position_in_block.
const uint DEPTHS = HEAD_DIM / FRAGMENT;         // fragments along a key
const uint VALUE_DEPTHS = VALUE_DIM / FRAGMENT;  // fragments along a value
const uint RUNS = VALUE_DIM / (RUN * ROWS_EACH); // runs of RUN values of a position's value per lane
const uint RUN_DEPTHS = RUN / SLOTS;             // fragments that a lane's run extends over
const uint VALUES_EACH = (TILES * RUNS + SUBGROUPS - 1u) / SUBGROUPS; // runs of fragments per subgroup

// The block: keys row by row, and values as fragments.
shared uvec4 keys[POSITIONS * GRANULES];
shared uvec4 values[TILES * VALUE_DEPTHS * SUBGROUP];

// Prefetched values of the next block.
VALUE_RUN next_values[VALUES_EACH][VALUES];

A_FRAGMENT query[DEPTHS];
SUMS attn_out[VALUE_DEPTHS];

// Packs a lane's eight f16 of a fragment.
uvec4 words_of(float16_t part[ELEMENTS]) {
    uvec4 words;
    [[unroll]] for (uint w = 0u; w < 4u; ++w) words[w] = packFloat2x16(f16vec2(part[2u * w], part[2u * w + 1u]));
    return words;
}

// Where rows of keys begin in the same bank, every second row swaps neighbouring groups of LANES_PER_ROW granules.
const bool EXCHANGES = GRANULES % (2u * LANES_PER_ROW) == 0u;

uint key_at(uint row, uint granule) {
    return row * GRANULES + (EXCHANGES ? granule ^ ((row & 1u) * LANES_PER_ROW) : granule);
}

// Offsets of this lane's granules of even and of odd groups. All further offsets are constants, so that no addresses
// are computed in loops.
uint key_bases[2];

void find_keys() {
    key_bases[0] = key_at(lane_row(), lane_part());
    key_bases[1] = key_at(lane_row(), LANES_PER_ROW + lane_part()) - LANES_PER_ROW;
}

void load_query(uint first, uint head) {
    find_keys();
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) attn_out[depth] = SUMS(0.0);
    uint starts[SLOTS];
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) starts[slot] = query_at(first, slot, head);
    float scale = pc.scale * LOG2_E;
    [[unroll]] for (uint depth = 0u; depth < DEPTHS; depth += 8u / VALUES) {
        float16_t parts[8u / VALUES][ELEMENTS];
        [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
            vec4 loaded[2];
            uint at = starts[slot] + (depth * VALUES / 8u * LANES_PER_ROW + lane_part()) * 8u;
            load8_q(pc.q, at, loaded[0], loaded[1]);
            [[unroll]] for (uint value = 0u; value < 8u; ++value) {
                float x = clamp(loaded[value / 4u][value % 4u] * scale, -65504.0, 65504.0);
                parts[value / VALUES][slot * VALUES + value % VALUES] = float16_t(x);
            }
        }
        [[unroll]] for (uint step = 0u; step < 8u / VALUES; ++step) {
            // A shuffle with itself, as a barrier: NVIDIA's compiler would keep the floats and round them again per
            // block.
            uvec4 words = subgroupShuffle(words_of(parts[step]), gl_SubgroupInvocationID);
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                query[depth + step][i] = unpackFloat2x16(words[i / 2u])[i % 2u];
            }
        }
    }
}

void load_values(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_SubgroupID + i * SUBGROUPS;
        uint run = number % RUNS * ROWS_EACH + lane_row();
        [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
            uint position_in_block = number / RUNS * FRAGMENT + COLUMN_OF(lane_part(), v);
            uint row = min(slot + min(position_in_block, uint(last)), pc.slots - 1u);
            next_values[i][v] = LOAD_VALUE(row * pc.kv_heads + kv_head, run);
        }
    }
}

// Returns this lane's granule of a group, in the row `above` rows after the lane's own.
uvec4 granule_of(uint above, uint group) {
    uint lies = EXCHANGES ? group ^ (above & 1u) : group;
    return keys[above * GRANULES + lies * LANES_PER_ROW + key_bases[lies % 2u]];
}

// Returns a lane's part of fragment `depth` of a run of values: of VALUES positions, SLOTS values each.
uvec4 value_part(VALUE_RUN runs[VALUES], uint depth) {
    float16_t part[ELEMENTS];
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint d = depth * SLOTS + i / VALUES;
        part[i] = RUN_VALUE(runs[i % VALUES], d);
    }
    return words_of(part);
}

void store_block() {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (KEYS_EACH * THREADS == POSITIONS * GRANULES || number < POSITIONS * GRANULES) {
            keys[key_at(number / GRANULES, number % GRANULES)] = KEY_HALVES(next_keys[i]);
        }
    }
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_SubgroupID + i * SUBGROUPS;
        if (VALUES_EACH * SUBGROUPS == TILES * RUNS || number < TILES * RUNS) {
            [[unroll]] for (uint depth = 0u; depth < RUN_DEPTHS; ++depth) {
                uint fragment = number * RUN_DEPTHS + depth;
                values[fragment * SUBGROUP + gl_SubgroupInvocationID] = value_part(next_values[i], depth);
            }
        }
    }
}

// Returns queries times the keys of a fragment of positions.
SUMS scores_of(uint tile) {
    SUMS scores = SUMS(0.0);
    [[unroll]] for (uint depth = 0u; depth < DEPTHS; depth += 8u / VALUES) {
        uvec4 granules[SLOTS];
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            granules[r] = granule_of(tile * FRAGMENT + r * ROWS_EACH, depth * VALUES / 8u);
        }
        [[unroll]] for (uint step = 0u; step < 8u / VALUES; ++step) {
            B_FRAGMENT key;
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                uint value = step * VALUES + i % VALUES;
                key[i] = unpackFloat2x16(granules[i / VALUES][value / 2u])[value % 2u];
            }
            scores = coopMatMulAdd(query[depth + step], key, scores);
        }
    }
    return scores;
}

// Adds the weighted values of a fragment of positions to attn_out.
void add_values(uint tile, A_FRAGMENT weights) {
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        uvec4 words = values[(tile * VALUE_DEPTHS + depth) * SUBGROUP + gl_SubgroupInvocationID];
        B_FRAGMENT value;
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) value[i] = unpackFloat2x16(words[i / 2u])[i % 2u];
        attn_out[depth] = coopMatMulAdd(weights, value, attn_out[depth]);
    }
}

// Masks the scores of positions that a token does not see.
void mask(uint current, int first, inout SUMS scores) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        int seen = first + int(COLUMN_OF(lane_part(), i % VALUES));
        scores[i] = sees(i / VALUES, current, seen) ? scores[i] : MASKED;
    }
}

void attend(uint current, int base, bool whole) {
    SUMS scores[TILES];
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) scores[tile] = scores_of(tile);
    if (!whole) {
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            mask(current, base + int(tile * FRAGMENT), scores[tile]);
        }
    }
    float shrink[SLOTS];
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float top = maximum[r];
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) top = max(top, scores[tile][r * VALUES + v]);
        }
        top = row_max(top);
        shrink[r] = exp2(maximum[r] - top);
        maximum[r] = top;
        total[r] *= shrink[r];
    }
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) attn_out[depth][i] *= shrink[i / VALUES];
    }
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
        A_FRAGMENT weights;
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
            float weight = exp2(scores[tile][i] - maximum[i / VALUES]);
            total[i / VALUES] += weight;
            weights[i] = float16_t(weight);
        }
        add_values(tile, weights);
    }
}

// Stores a lane's outputs of a token, times a factor.
void store_row(uint at, uint r, float factor) {
#if VALUES == 1
    // One value of each fragment.
    uint column = COLUMN_OF(lane_part(), 0u);
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        uint value = depth * SLOTS + column / ROWS_EACH;
        uint d = (value / RUN * ROWS_EACH + column % ROWS_EACH) * RUN + value % RUN;
        store_y(pc.y, at + d, attn_out[depth][r] * factor);
    }
#else
    // Whole runs.
    const uint each = VALUES / SLOTS;
    [[unroll]] for (uint four = 0u; four < RUNS * RUN; four += 4u) {
        [[unroll]] for (uint i = 0u; i < each; ++i) {
            vec4 results;
            [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                uint value = four + j;
                results[j] = attn_out[value / SLOTS][r * VALUES + value % SLOTS * each + i] * factor;
            }
            uint run = four / RUN * ROWS_EACH + COLUMN_OF(lane_part(), i);
            store4_y(pc.y, at + run * RUN + four % RUN, results);
        }
    }
#endif
}

void store_rows(uint first, uint head, float factors[SLOTS]) {
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        uint token = first + lane_row() + r * ROWS_EACH;
        if (token < pc.tokens) store_row(token * pc.y_strides.x + head * pc.y_strides.y, r, factors[r]);
    }
}
