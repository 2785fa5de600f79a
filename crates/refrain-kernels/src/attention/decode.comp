// Decode attention. prepare.glsl declares the constants and shared memory, tiles.glsl or subgroups.glsl goes through the
// positions, splits.glsl combines the splits.

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

// Reduces over the groups. Stores the output, or, with several splits, the partial result in the workspace.
void finish(uint splits) {
    uint group = INVOCATION / COLUMNS;
    barrier();
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        [[unroll]] for (uint s = 0u; s < SPAN; ++s) {
            uint unit = INVOCATION % COLUMNS + s * COLUMNS;
            [[unroll]] for (uint j = 0u; j < PAIRS; ++j) {
                uint at = ((h * GROUPS + group) * VALUE_DIM + unit * UNIT) / 2u + j;
                if (group < GROUPS && unit < VALUE_UNITS) groups_values[at] = sums[(h * SPAN + s) * PAIRS + j];
            }
        }
    }
    barrier();
    for (uint e = gl_LocalInvocationIndex; e < HEADS * VALUE_DIM / 2u; e += THREADS) {
        uint h = e / (VALUE_DIM / 2u);
        uint pair = e % (VALUE_DIM / 2u);
        vec2 sum = vec2(0.0);
        for (uint g = 0u; g < GROUPS; ++g) sum += groups_values[(h * GROUPS + g) * VALUE_DIM / 2u + pair];
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
#ifdef BY_SUBGROUPS
    // The token's own position comes before the others.
    if (has_own) --end;
#endif
    // The first tile is loaded while queries and key are prepared.
    if (first < end) {
        uint page = page_of_tile(first);
        load_keys(first, page);
        load_values(first, page);
    }
    prepare();
    attend();
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
