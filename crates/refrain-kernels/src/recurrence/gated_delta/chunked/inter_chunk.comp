// Carries the state from chunk to chunk, for SEQUENCES sequences one after another. A workgroup takes SLICE values of a
// head: their rows of the state S stay in fragments. With the arrays of intra_chunk.comp: δ = U − W Sᵀ, outputs = γ q
// Sᵀ + P δ, S ← γ S + δᵀ (γ k). δ and outputs are transposed here, so that the contracted dimension is contiguous. The
// matrix cores get S and δ as f16, times a power of two that keeps any f32 in range.
layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer wide_ref { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer floats_ref { float at[]; };

layout(push_constant, scalar) uniform Push {
    wide_ref workspace;
    positions_ref positions;
    sequences_ref sequences;
    state_ref state;
    y_ref y;
    uint tokens;
    uint states; // sequences
    uvec2 y_strides; // between tokens, between heads
} pc;

// Rows are padded by a word, so that neighbouring rows begin in different banks.
const uint WEIGHT_WORDS = CHUNK / 8u + 1u;
// Offsets of the f16 arrays, in words of eight: W, γ q and γ k, row by row; P; S; δ.
const uint WEIGHTS_AT = 3u * CHUNK * KEY_WORDS;
const uint STATE_AT = WEIGHTS_AT + CHUNK * WEIGHT_WORDS;
const uint DELTA_AT = STATE_AT + SLICE * KEY_WORDS;
const uint F16_WORDS = DELTA_AT + SLICE * WEIGHT_WORDS;
// Loads of an invocation per chunk.
const uint KEYS = 3u * CHUNK * (KEY_DIM / 8u);
const uint WORDS = KEYS + CHUNK * (CHUNK / 8u);
const uint WORDS_EACH = (WORDS + THREADS - 1u) / THREADS;
const uint VALUE_WORDS = CHUNK * (SLICE / 4u);
const uint VALUE_WORDS_EACH = (VALUE_WORDS + THREADS - 1u) / THREADS;
// Tiles of δ, then as many of the outputs; tiles of S.
const uint TILE_COLUMNS = CHUNK / PART_COLUMNS;
const uint TILES = SLICE / PART_ROWS * TILE_COLUMNS;
const uint TILES_EACH = (2u * TILES + SUBGROUPS - 1u) / SUBGROUPS;
const uint STATE_COLUMNS = KEY_DIM / PART_COLUMNS;
const uint STATE_TILES = SLICE / PART_ROWS * STATE_COLUMNS;
const uint STATE_EACH = (STATE_TILES + SUBGROUPS - 1u) / SUBGROUPS;
const uint TILE_ELEMENTS = PART_ROWS * PART_COLUMNS;
// The exponent of the largest f16 of a state: dot products with keys stay below f16's maximum.
const uint TOP = 5u;

// Eight f16 to a word, since matrix cores load from multiples of 16 bytes.
shared uvec4 f16_words[F16_WORDS];
shared vec4 values[CHUNK * SLICE / 4u]; // U
shared vec4 results[CHUNK * SLICE / 4u];
#if defined(OPAQUE_LAYOUT) || VALUES == 1
#define STAGED 1
shared float staged_tile[SUBGROUPS * TILE_ELEMENTS];
#endif
// Per token of the chunk and of the chunk before: whether it belongs to the sequence, and its decay from the chunk's
// start.
shared uint own[2u * CHUNK];
shared float decays[2u * CHUNK];
// Per chunk of both: kinds has bit 0 if the sequence has tokens that are not padding, bit 1 if there are tokens of
// others; the index after the sequence's last token; the largest magnitude of the state before it, as bits.
shared uint kinds[2], ends[2], largest[2];
// The first chunk with tokens of the sequence, and the one after the last.
shared uint chunk_begin, chunk_end;
// A bit for each of the workgroup's sequences that has tokens.
shared uint present;

// The current sequence.
uint sequence;

uvec4 next_words[WORDS_EACH], next_values[VALUE_WORDS_EACH];
// Of the next chunk, for this invocation's token: whether it is the sequence's, whether it is another's, whether it is
// the sequence's and not padding, and its decay from the chunk's start; and the largest magnitude of U.
bool next_own, next_other, next_taken;
float next_decay, next_largest;
SUMS state[STATE_EACH];
SUMS sums[TILES_EACH];

uint head() { return gl_WorkGroupID.y; }
uint slice_begin() { return gl_WorkGroupID.x * SLICE; }
uint sequence_of(uint t) { return min(load_sequences(pc.sequences, t), pc.states - 1u); }
bool is_own(uint t) { return sequence_of(t) == sequence; }

// Offset of a chunk's block, in words.
uint block_at(uint chunk) { return (chunk * gl_NumWorkGroups.y + head()) * (BLOCK_BYTES / 16u); }

bool is_tile(uint n) { return gl_SubgroupID + n * SUBGROUPS < 2u * TILES; }
bool is_delta(uint n) { return gl_SubgroupID + n * SUBGROUPS < TILES; }
uint tile_row(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % TILES / TILE_COLUMNS * PART_ROWS; }
uint tile_column(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % TILE_COLUMNS * PART_COLUMNS; }
bool is_state(uint n) { return gl_SubgroupID + n * SUBGROUPS < STATE_TILES; }
uint state_row(uint n) { return (gl_SubgroupID + n * SUBGROUPS) / STATE_COLUMNS * PART_ROWS; }
uint state_column(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % STATE_COLUMNS * PART_COLUMNS; }

// Offset of a tile of the state.
uint state_at(uint n) {
    uint value = (sequence * gl_NumWorkGroups.y + head()) * VALUE_DIM + slice_begin() + state_row(n);
    return value * KEY_DIM + state_column(n);
}

uint pair_of(vec2 x) { return packFloat2x16(f16vec2(clamp(x, -65504.0, 65504.0))); }

// Stores a tile, rounded to f16, in shared memory from word `at` on, with rows `stride` words apart.
void share(SUMS tile, uint at, uint stride) {
#ifdef STAGED
    uint begin = gl_SubgroupID * TILE_ELEMENTS;
    coopMatStore(tile, staged_tile, begin, PART_COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
    meet();
    for (uint i = 2u * gl_SubgroupInvocationID; i < TILE_ELEMENTS; i += 2u * SUBGROUP) {
        uint column = i % PART_COLUMNS;
        f16_words[at + i / PART_COLUMNS * stride + column / 8u][column / 2u % 4u] = pair_of(vec2(staged_tile[begin + i], staged_tile[begin + i + 1u]));
    }
    meet();
#else
    [[unroll]] for (uint i = 0u; i < ELEMENTS; i += 2u) {
        uint row = i / VALUES * ROWS_EACH + lane_row();
        uint column = COLUMN_OF(lane_part(), i % VALUES);
        f16_words[at + row * stride + column / 8u][column / 2u % 4u] = pair_of(vec2(tile[i], tile[i + 1u]));
    }
#endif
}

// The largest magnitude of a lane's part of a tile.
float largest_of(SUMS tile) {
    float top = 0.0;
#ifdef OPAQUE_LAYOUT
    for (uint i = 0u; i < tile.length(); ++i) top = max(top, abs(tile[i]));
#else
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) top = max(top, abs(tile[i]));
#endif
    return top;
}

void find_present() {
    if (gl_LocalInvocationIndex == 0u) present = 0u;
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < pc.tokens; t += THREADS) {
        uint number = sequence_of(t) - gl_WorkGroupID.z * SEQUENCES;
        if (number < SEQUENCES) atomicOr(present, 1u << number);
    }
    barrier();
}

void find_chunks() {
    if (gl_LocalInvocationIndex == 0u) {
        chunk_begin = ~0u;
        chunk_end = 0u;
        [[unroll]] for (uint i = 0u; i < 2u; ++i) kinds[i] = ends[i] = largest[i] = 0u;
    }
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < pc.tokens; t += THREADS) {
        if (!is_own(t)) continue;
        atomicMin(chunk_begin, t / CHUNK);
        atomicMax(chunk_end, t / CHUNK + 1u);
    }
    barrier();
}

// Issues the loads of a chunk.
void load_chunk(uint chunk) {
    uint block = block_at(chunk);
    [[unroll]] for (uint i = 0u; i < WORDS_EACH; ++i) {
        next_words[i] = pc.workspace.at[block + min(gl_LocalInvocationIndex + i * THREADS, WORDS - 1u)];
    }
    uint slice = block + U_AT / 16u + slice_begin() / 4u;
    [[unroll]] for (uint i = 0u; i < VALUE_WORDS_EACH; ++i) {
        uint n = min(gl_LocalInvocationIndex + i * THREADS, VALUE_WORDS - 1u);
        next_values[i] = pc.workspace.at[slice + n / (SLICE / 4u) * (VALUE_DIM / 4u) + n % (SLICE / 4u)];
    }
    uint i = min(gl_LocalInvocationIndex, CHUNK - 1u);
    uint t = chunk * CHUNK + i;
    uint token = min(t, pc.tokens - 1u);
    bool inside = t < pc.tokens && gl_LocalInvocationIndex < CHUNK;
    next_own = is_own(token) && inside;
    next_other = inside && !next_own;
    next_taken = next_own && load_positions(pc.positions, token) >= 0;
    next_decay = floats_ref(pc.workspace).at[block * 4u + DECAYS_AT / 4u + i];
    next_largest = floats_ref(pc.workspace).at[block * 4u + MAX_U_AT / 4u];
}

// Stores the loaded chunk in shared memory, as chunk `parity` of both.
void share_chunk(uint parity) {
    [[unroll]] for (uint i = 0u; i < WORDS_EACH; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        uint weight = n - KEYS;
        uint to = n < KEYS
            ? n / (KEY_DIM / 8u) * KEY_WORDS + n % (KEY_DIM / 8u)
            : WEIGHTS_AT + weight / (CHUNK / 8u) * WEIGHT_WORDS + weight % (CHUNK / 8u);
        if (n < WORDS) f16_words[to] = next_words[i];
    }
    [[unroll]] for (uint i = 0u; i < VALUE_WORDS_EACH; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n < VALUE_WORDS) values[n] = uintBitsToFloat(next_values[i]);
    }
    if (gl_SubgroupID * SUBGROUP >= CHUNK) return;
    uint i = gl_LocalInvocationIndex;
    if (i < CHUNK) {
        own[parity * CHUNK + i] = uint(next_own);
        decays[parity * CHUNK + i] = next_decay;
    }
    uint kind = subgroupOr(uint(next_taken) + 2u * uint(next_other));
    uint end = subgroupMax(next_own ? i + 1u : 0u);
    if (subgroupElect()) {
        atomicOr(kinds[parity], kind);
        atomicMax(ends[parity], end);
    }
}

void find_largest(uint parity) {
    float top = 0.0;
    [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) {
        if (is_state(n)) top = max(top, largest_of(state[n]));
    }
    // Bits of non-negative floats are ordered like the floats.
    uint bits = subgroupMax(floatBitsToUint(top));
    if (subgroupElect()) atomicMax(largest[parity], bits);
}

// The factor of S and δ as f16: the larger of both becomes about 2^TOP.
float scale_of(float top) {
    uint exponent = floatBitsToUint(top) >> 23 & 255u;
    return exponent == 0u ? 1.0 : uintBitsToFloat(clamp(254u + TOP - exponent, 1u, 253u) << 23);
}

// δ = U − W Sᵀ, and the outputs' part γ q Sᵀ, both times the scale.
void multiply_state(float scale) {
    [[unroll]] for (uint n = 0u; n < TILES_EACH; ++n) {
        uint row = tile_column(n) + (is_delta(n) ? 0u : CHUNK);
        if (is_tile(n)) {
            uint at = (tile_column(n) * SLICE + tile_row(n)) / 4u;
            coopMatLoad(sums[n], values, at, SLICE / 4u, gl_CooperativeMatrixLayoutColumnMajor);
            sums[n] = sums[n] * (is_delta(n) ? scale : 0.0);
            // Two accumulators: products depend on every second one only.
            SUMS second = SUMS(0.0);
            [[unroll]] for (uint depth = 0u; depth < KEY_DIM / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT s_tile;
                B_FRAGMENT key;
                uint from = STATE_AT + tile_row(n) * KEY_WORDS + depth;
                coopMatLoad(s_tile, f16_words, from, KEY_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                coopMatLoad(key, f16_words, row * KEY_WORDS + depth, KEY_WORDS, gl_CooperativeMatrixLayoutColumnMajor);
                if (depth * 8u / PART_DEPTH % 2u == 0u) {
                    sums[n] = coopMatMulAdd(s_tile, key, sums[n]);
                } else {
                    second = coopMatMulAdd(s_tile, key, second);
                }
            }
            sums[n] = sums[n] + second;
            if (is_delta(n)) share(sums[n], DELTA_AT + tile_row(n) * WEIGHT_WORDS + tile_column(n) / 8u, WEIGHT_WORDS);
        }
    }
    barrier();
}

// Zeroes δ of other sequences' tokens.
void mask_others(uint parity) {
    for (uint n = gl_LocalInvocationIndex; n < SLICE * (CHUNK / 2u); n += THREADS) {
        uint i = n % (CHUNK / 2u) * 2u;
        uint at = parity * CHUNK + i;
        uint mask = (own[at] != 0u ? 0xffffu : 0u) | (own[at + 1u] != 0u ? 0xffff0000u : 0u);
        f16_words[DELTA_AT + n / (CHUNK / 2u) * WEIGHT_WORDS + i / 8u][i / 2u % 4u] &= mask;
    }
    barrier();
}

// Adds P δ to the outputs and stores them in shared memory.
void add_intra_chunk(float scale) {
    [[unroll]] for (uint n = 0u; n < TILES_EACH; ++n) {
        if (is_tile(n) && !is_delta(n)) {
            [[unroll]] for (uint depth = 0u; depth < CHUNK / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT delta;
                B_FRAGMENT weights;
                uint from = DELTA_AT + tile_row(n) * WEIGHT_WORDS + depth;
                coopMatLoad(delta, f16_words, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                from = WEIGHTS_AT + tile_column(n) * WEIGHT_WORDS + depth;
                coopMatLoad(weights, f16_words, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutColumnMajor);
                sums[n] = coopMatMulAdd(delta, weights, sums[n]);
            }
            uint at = (tile_column(n) * SLICE + tile_row(n)) / 4u;
            coopMatStore(sums[n] * (1.0 / scale), results, at, SLICE / 4u, gl_CooperativeMatrixLayoutColumnMajor);
        }
    }
}

void update_state(float decay, float scale) {
    [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) {
        if (is_state(n)) {
            state[n] = state[n] * (decay * scale);
            [[unroll]] for (uint depth = 0u; depth < CHUNK / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT delta;
                B_FRAGMENT keys;
                uint from = DELTA_AT + state_row(n) * WEIGHT_WORDS + depth;
                coopMatLoad(delta, f16_words, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                from = (2u * CHUNK + depth * 8u) * KEY_WORDS + state_column(n) / 8u;
                coopMatLoad(keys, f16_words, from, KEY_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                state[n] = coopMatMulAdd(delta, keys, state[n]);
            }
            state[n] = state[n] * (1.0 / scale);
        }
    }
}

void store_results(uint chunk, bool are) {
    for (uint n = gl_LocalInvocationIndex; n < CHUNK * (SLICE / 4u); n += THREADS) {
        uint i = n / (SLICE / 4u);
        uint at = (chunk * CHUNK + i) * pc.y_strides.x + head() * pc.y_strides.y + slice_begin() + n % (SLICE / 4u) * 4u;
        if (own[chunk % 2u * CHUNK + i] != 0u) store4_y(pc.y, at, are ? results[n] : vec4(0.0));
    }
}

// Whether the first token that is not padding has position 0: the stored state is then ignored, even if it holds NaN.
bool begins_sequence() {
    for (uint t = chunk_begin * CHUNK; t < pc.tokens; ++t) {
        if (is_own(t) && load_positions(pc.positions, t) >= 0) return load_positions(pc.positions, t) == 0;
    }
    return false;
}

// Takes the chunks of the sequence.
void take_sequence() {
    find_chunks();
    load_chunk(chunk_begin);
    if (begins_sequence()) {
        [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) state[n] = SUMS(0.0);
    } else {
        [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) {
            if (is_state(n)) coopMatLoad(state[n], pc.state.at, state_at(n), KEY_DIM, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    find_largest(chunk_begin % 2u);
    barrier();
    bool changed = false;
    for (uint chunk = chunk_begin; chunk < chunk_end; ++chunk) {
        uint parity = chunk % 2u;
        float scale = scale_of(max(uintBitsToFloat(largest[parity]), next_largest));
        share_chunk(parity);
        load_chunk(min(chunk + 1u, chunk_end - 1u));
        [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) {
            uint to = STATE_AT + state_row(n) * KEY_WORDS + state_column(n) / 8u;
            if (is_state(n)) share(state[n] * scale, to, KEY_WORDS);
        }
        barrier();
        uint kind = kinds[parity];
        bool takes = (kind & 1u) != 0u;
        float decay = decays[parity * CHUNK + max(ends[parity], 1u) - 1u];
        // Resets the slots of the chunk before for the next one.
        if (gl_LocalInvocationIndex == 0u) kinds[1u - parity] = ends[1u - parity] = largest[1u - parity] = 0u;
        multiply_state(scale);
        if ((kind & 2u) != 0u) mask_others(parity);
        add_intra_chunk(scale);
        if (takes) update_state(decay, scale);
        find_largest(1u - parity);
        barrier();
        store_results(chunk, takes);
        changed = changed || takes;
    }
    if (!changed) return;
    [[unroll]] for (uint n = 0u; n < STATE_EACH; ++n) {
        if (is_state(n)) coopMatStore(state[n], pc.state.at, state_at(n), KEY_DIM, gl_CooperativeMatrixLayoutRowMajor);
    }
}

void main() UNIFORM_FLOW {
    find_present();
    for (uint left = present; left != 0u; left &= left - 1u) {
        sequence = gl_WorkGroupID.z * SEQUENCES + findLSB(left);
        take_sequence();
        barrier();
    }
}
