// Decode attention. prepare.glsl declares the constants and shared memory, splits.glsl combines the splits.

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

void store_pair(uint h, uint d, vec2 pair) {
#ifdef GATED
    uint gate_at = token * GATE_STRIDE + (head + h) * GATE_BETWEEN + d;
    pair /= 1.0 + exp(-vec2(load_gate(pc.gate, gate_at), load_gate(pc.gate, gate_at + 1u)));
#endif
    uint at = token * Y_STRIDE + (head + h) * VALUE_DIM + d;
    store_y(pc.y, at, pair.x);
    store_y(pc.y, at + 1u, pair.y);
}

#ifdef SPLITS
// Index, in pairs of floats, of a split of head `h` in the workspace: output, then largest score and sum of weights.
uint split_at(uint h, uint split) {
    uint heads = gl_NumWorkGroups.x * HEADS;
    return ((token * heads + head + h) * gl_NumWorkGroups.z + split) * (VALUE_DIM / 2u + 1u);
}
#endif

// Reduces over the groups, REDUCED heads at a time. Stores the output, or, with several splits, the partial result in the
// workspace.
void finish(uint splits) {
    uint group = gl_LocalInvocationIndex / COLUMNS;
    [[unroll]] for (uint base = 0u; base < HEADS; base += REDUCED) {
        barrier();
        [[unroll]] for (uint i = 0u; i < REDUCED; ++i) {
            [[unroll]] for (uint s = 0u; s < SPAN; ++s) {
                uint unit = gl_LocalInvocationIndex % COLUMNS + s * COLUMNS;
                [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
                    uint at = ((i * GROUPS + group) * VALUE_DIM + unit * UNIT) / 2u + j;
                    vec2 sum = sums[((base + i) * SPAN + s) * PAIRS + j];
                    if (group < GROUPS && unit < VALUE_UNITS) groups_values[at] = sum;
                }
            }
        }
        barrier();
        for (uint e = gl_LocalInvocationIndex; e < REDUCED * VALUE_DIM / 2u; e += THREADS) {
            uint i = e / (VALUE_DIM / 2u);
            uint h = base + i;
            uint pair = e % (VALUE_DIM / 2u);
            vec2 sum = vec2(0.0);
            for (uint g = 0u; g < GROUPS; ++g) sum += groups_values[(i * GROUPS + g) * VALUE_DIM / 2u + pair];
#ifdef SPLITS
            if (splits > 1u) {
                pc.workspace.at[split_at(h, gl_WorkGroupID.z) + pair] = sum;
                continue;
            }
#endif
            float total = with_sink(h, maxima[h], totals[h]);
            store_pair(h, 2u * pair, total == 0.0 ? vec2(0.0) : sum / total);
        }
    }
}

#ifdef SPLITS
// In splits.glsl.
void store_totals();
bool arrives_last(uint splits);
void combine(uint splits);
#endif

void main() UNIFORM_FLOW {
    token = gl_WorkGroupID.y;
    head = gl_WorkGroupID.x * HEADS;
    kv_head = head / RATIO;
#ifndef COMBINE_PASS
    load_vectors();
#endif
    uint splits = find_split();
#ifdef COMBINE_PASS
    // The first pass has stored the splits; a single one is already the output.
    if (gl_WorkGroupID.z == 0u && splits > 1u) combine(splits);
    return;
#else
    if (gl_WorkGroupID.z >= splits) return;
    [[unroll]] for (uint j = 0u; j < HEADS * SPAN * PAIRS; ++j) sums[j] = vec2(0.0);
    // The first tile is loaded while queries and key are prepared.
    if (first < end) {
        uint page = page_of_tile(first);
        load_keys(first, page);
        load_values(first, page);
    }
    prepare();
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
    finish(splits);
#ifdef SPLITS
    if (splits > 1u) {
        store_totals();
#ifndef SPLIT_PASS
        if (arrives_last(splits)) combine(splits);
#endif
    }
#endif
#endif
}
