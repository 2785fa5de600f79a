// From chunk to chunk of a sequence's tokens, for SEQUENCES sequences in turn: SLICE values of a head, whose memory M, a
// row for each value, stays in fragments. With what is known of a chunk by itself: δ = U − W Mᵀ, results = γ q Mᵀ + P δ,
// M ← γ M + δᵀ (γ k); δ and results lie across here, so that what is contracted lies together. What the matrix cores get of
// the memory and of δ is halves, times a power of two that keeps any f32 in range.
layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer wide_ref { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer floats_ref { float at[]; };

layout(push_constant, scalar) uniform Push {
    wide_ref workspace;
    positions_ref positions;
    sequences_ref sequences;
    memory_ref memory;
    y_ref y;
    uint tokens;
    uint states; // sequences
    uvec2 y_strides; // between tokens, between heads
} pc;

// Rows are longer by a word, so that they begin in other banks than those beside them.
const uint WEIGHT_WORDS = CHUNK / 8u + 1u;
// Where parts of what is halves begin, in words of eight: W, γ q and γ k, row by row; P; M; δ.
const uint WEIGHTS_AT = 3u * CHUNK * KEY_WORDS;
const uint MEMORY_AT = WEIGHTS_AT + CHUNK * WEIGHT_WORDS;
const uint DELTA_AT = MEMORY_AT + SLICE * KEY_WORDS;
const uint HALF_WORDS = DELTA_AT + SLICE * WEIGHT_WORDS;
// What an invocation brings of a chunk.
const uint KEYS = 3u * CHUNK * (KEY_DIM / 8u);
const uint WORDS = KEYS + CHUNK * (CHUNK / 8u);
const uint WORDS_EACH = (WORDS + THREADS - 1u) / THREADS;
const uint VALUE_WORDS = CHUNK * (SLICE / 4u);
const uint VALUE_WORDS_EACH = (VALUE_WORDS + THREADS - 1u) / THREADS;
// Tiles of δ, then as many of results; those of the memory.
const uint TILE_COLUMNS = CHUNK / PART_COLUMNS;
const uint TILES = SLICE / PART_ROWS * TILE_COLUMNS;
const uint TILES_EACH = (2u * TILES + SUBGROUPS - 1u) / SUBGROUPS;
const uint MEMORY_COLUMNS = KEY_DIM / PART_COLUMNS;
const uint MEMORY_TILES = SLICE / PART_ROWS * MEMORY_COLUMNS;
const uint MEMORY_EACH = (MEMORY_TILES + SUBGROUPS - 1u) / SUBGROUPS;
const uint TILE_ELEMENTS = PART_ROWS * PART_COLUMNS;
// The exponent of the largest half of a memory: sums of a key's products stay below the largest there is.
const uint TOP = 5u;

// Eight to a word: matrix cores load from places of whole 16 bytes.
shared uvec4 halves[HALF_WORDS];
shared vec4 values[CHUNK * SLICE / 4u]; // U
shared vec4 results[CHUNK * SLICE / 4u];
#if defined(HIDDEN_ORDER) || VALUES == 1
#define PASSED 1
shared float passed[SUBGROUPS * TILE_ELEMENTS];
#endif
// Of the chunk's tokens, and of those of the chunk before.
shared uint own[2u * CHUNK];
shared float kept_of[2u * CHUNK];
// Of both chunks: one where the sequence has tokens that are no padding, two where there are others'; the token behind its
// last; the largest value of the memory before it.
shared uint kinds[2], ends[2], largest[2];
// The chunks that have its tokens: the first, and the one behind the last.
shared uint chunk_begin, chunk_end;
// A bit for each of the workgroup's sequences that has tokens.
shared uint present;

// The one that it is at.
uint sequence;

uvec4 next_words[WORDS_EACH], next_values[VALUE_WORDS_EACH];
// Of the next chunk, of this invocation's token: whether it is the sequence's, whether it is no padding, and what is left of
// the memory behind it; and the largest value of U.
bool next_own, next_other, next_taken;
float next_kept, next_largest;
SUMS memory[MEMORY_EACH];
SUMS sums[TILES_EACH];

uint head() { return gl_WorkGroupID.y; }
uint slice_begin() { return gl_WorkGroupID.x * SLICE; }
uint sequence_of(uint t) { return min(load_sequences(pc.sequences, t), pc.states - 1u); }
bool is_own(uint t) { return sequence_of(t) == sequence; }

// Where a chunk's block begins, in words.
uint block_at(uint chunk) { return (chunk * gl_NumWorkGroups.y + head()) * (BLOCK_BYTES / 16u); }

bool is_tile(uint n) { return gl_SubgroupID + n * SUBGROUPS < 2u * TILES; }
bool is_delta(uint n) { return gl_SubgroupID + n * SUBGROUPS < TILES; }
uint tile_row(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % TILES / TILE_COLUMNS * PART_ROWS; }
uint tile_column(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % TILE_COLUMNS * PART_COLUMNS; }
bool is_memory(uint n) { return gl_SubgroupID + n * SUBGROUPS < MEMORY_TILES; }
uint memory_row(uint n) { return (gl_SubgroupID + n * SUBGROUPS) / MEMORY_COLUMNS * PART_ROWS; }
uint memory_column(uint n) { return (gl_SubgroupID + n * SUBGROUPS) % MEMORY_COLUMNS * PART_COLUMNS; }

// Where a tile of the memory begins.
uint memory_at(uint n) {
    uint value = (sequence * gl_NumWorkGroups.y + head()) * VALUE_DIM + slice_begin() + memory_row(n);
    return value * KEY_DIM + memory_column(n);
}

uint pair_of(vec2 x) { return packFloat2x16(f16vec2(clamp(x, -65504.0, 65504.0))); }

// Puts a tile, rounded to halves, into shared memory from word `at` on, rows `stride` words apart.
void share(SUMS tile, uint at, uint stride) {
#ifdef PASSED
    uint begin = gl_SubgroupID * TILE_ELEMENTS;
    coopMatStore(tile, passed, begin, PART_COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
    meet();
    for (uint i = 2u * gl_SubgroupInvocationID; i < TILE_ELEMENTS; i += 2u * SUBGROUP) {
        uint column = i % PART_COLUMNS;
        halves[at + i / PART_COLUMNS * stride + column / 8u][column / 2u % 4u] = pair_of(vec2(passed[begin + i], passed[begin + i + 1u]));
    }
    meet();
#else
    [[unroll]] for (uint i = 0u; i < ELEMENTS; i += 2u) {
        uint row = i / VALUES * ROWS_EACH + lane_row();
        uint column = COLUMN_OF(lane_part(), i % VALUES);
        halves[at + row * stride + column / 8u][column / 2u % 4u] = pair_of(vec2(tile[i], tile[i + 1u]));
    }
#endif
}

// The largest magnitude of a lane's part of a tile.
float largest_of(SUMS tile) {
    float top = 0.0;
#ifdef HIDDEN_ORDER
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

// Asks for a chunk.
void load_chunk(uint chunk) {
    uint block = block_at(chunk);
    [[unroll]] for (uint i = 0u; i < WORDS_EACH; ++i) {
        next_words[i] = pc.workspace.at[block + min(gl_LocalInvocationIndex + i * THREADS, WORDS - 1u)];
    }
    uint slice = block + CORRECTED / 16u + slice_begin() / 4u;
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
    next_kept = floats_ref(pc.workspace).at[block * 4u + KEPT / 4u + i];
    next_largest = floats_ref(pc.workspace).at[block * 4u + LARGEST / 4u];
}

// Shares what was asked for, as chunk `parity` of both.
void share_chunk(uint parity) {
    [[unroll]] for (uint i = 0u; i < WORDS_EACH; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        uint weight = n - KEYS;
        uint to = n < KEYS
            ? n / (KEY_DIM / 8u) * KEY_WORDS + n % (KEY_DIM / 8u)
            : WEIGHTS_AT + weight / (CHUNK / 8u) * WEIGHT_WORDS + weight % (CHUNK / 8u);
        if (n < WORDS) halves[to] = next_words[i];
    }
    [[unroll]] for (uint i = 0u; i < VALUE_WORDS_EACH; ++i) {
        uint n = gl_LocalInvocationIndex + i * THREADS;
        if (n < VALUE_WORDS) values[n] = uintBitsToFloat(next_values[i]);
    }
    if (gl_SubgroupID * SUBGROUP >= CHUNK) return;
    uint i = gl_LocalInvocationIndex;
    if (i < CHUNK) {
        own[parity * CHUNK + i] = uint(next_own);
        kept_of[parity * CHUNK + i] = next_kept;
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
    [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) {
        if (is_memory(n)) top = max(top, largest_of(memory[n]));
    }
    // As bits, which are ordered alike.
    uint bits = subgroupMax(floatBitsToUint(top));
    if (subgroupElect()) atomicMax(largest[parity], bits);
}

// By what the memory and δ are multiplied as halves, so that the larger of both is about 2^TOP.
float scale_of(float top) {
    uint exponent = floatBitsToUint(top) >> 23 & 255u;
    return exponent == 0u ? 1.0 : uintBitsToFloat(clamp(254u + TOP - exponent, 1u, 253u) << 23);
}

// δ, and what results have of the memory, both times the scale.
void correct(float scale) {
    [[unroll]] for (uint n = 0u; n < TILES_EACH; ++n) {
        uint row = tile_column(n) + (is_delta(n) ? 0u : CHUNK);
        if (is_tile(n)) {
            uint at = (tile_column(n) * SLICE + tile_row(n)) / 4u;
            coopMatLoad(sums[n], values, at, SLICE / 4u, gl_CooperativeMatrixLayoutColumnMajor);
            sums[n] = sums[n] * (is_delta(n) ? scale : 0.0);
            // Every second product waits for others.
            SUMS second = SUMS(0.0);
            [[unroll]] for (uint depth = 0u; depth < KEY_DIM / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT known;
                B_FRAGMENT key;
                uint from = MEMORY_AT + tile_row(n) * KEY_WORDS + depth;
                coopMatLoad(known, halves, from, KEY_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                coopMatLoad(key, halves, row * KEY_WORDS + depth, KEY_WORDS, gl_CooperativeMatrixLayoutColumnMajor);
                if (depth * 8u / PART_DEPTH % 2u == 0u) {
                    sums[n] = coopMatMulAdd(known, key, sums[n]);
                } else {
                    second = coopMatMulAdd(known, key, second);
                }
            }
            sums[n] = sums[n] + second;
            if (is_delta(n)) share(sums[n], DELTA_AT + tile_row(n) * WEIGHT_WORDS + tile_column(n) / 8u, WEIGHT_WORDS);
        }
    }
    barrier();
}

// What others' tokens of the chunk have corrected is theirs.
void leave_out_others(uint parity) {
    for (uint n = gl_LocalInvocationIndex; n < SLICE * (CHUNK / 2u); n += THREADS) {
        uint i = n % (CHUNK / 2u) * 2u;
        uint at = parity * CHUNK + i;
        uint kept = (own[at] != 0u ? 0xffffu : 0u) | (own[at + 1u] != 0u ? 0xffff0000u : 0u);
        halves[DELTA_AT + n / (CHUNK / 2u) * WEIGHT_WORDS + i / 8u][i / 2u % 4u] &= kept;
    }
    barrier();
}

// Results by what their tokens and those before them have corrected.
void share_results(float scale) {
    [[unroll]] for (uint n = 0u; n < TILES_EACH; ++n) {
        if (is_tile(n) && !is_delta(n)) {
            [[unroll]] for (uint depth = 0u; depth < CHUNK / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT corrected;
                B_FRAGMENT weights;
                uint from = DELTA_AT + tile_row(n) * WEIGHT_WORDS + depth;
                coopMatLoad(corrected, halves, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                from = WEIGHTS_AT + tile_column(n) * WEIGHT_WORDS + depth;
                coopMatLoad(weights, halves, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutColumnMajor);
                sums[n] = coopMatMulAdd(corrected, weights, sums[n]);
            }
            uint at = (tile_column(n) * SLICE + tile_row(n)) / 4u;
            coopMatStore(sums[n] * (1.0 / scale), results, at, SLICE / 4u, gl_CooperativeMatrixLayoutColumnMajor);
        }
    }
}

void remember(float kept, float scale) {
    [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) {
        if (is_memory(n)) {
            memory[n] = memory[n] * (kept * scale);
            [[unroll]] for (uint depth = 0u; depth < CHUNK / 8u; depth += PART_DEPTH / 8u) {
                A_FRAGMENT corrected;
                B_FRAGMENT keys;
                uint from = DELTA_AT + memory_row(n) * WEIGHT_WORDS + depth;
                coopMatLoad(corrected, halves, from, WEIGHT_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                from = (2u * CHUNK + depth * 8u) * KEY_WORDS + memory_column(n) / 8u;
                coopMatLoad(keys, halves, from, KEY_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                memory[n] = coopMatMulAdd(corrected, keys, memory[n]);
            }
            memory[n] = memory[n] * (1.0 / scale);
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

// The first token that is not padding begins the sequence: what the memory holds is of no account, even what is no number.
bool begins_anew() {
    for (uint t = chunk_begin * CHUNK; t < pc.tokens; ++t) {
        if (is_own(t) && load_positions(pc.positions, t) >= 0) return load_positions(pc.positions, t) == 0;
    }
    return false;
}

// Goes through the chunks of the sequence.
void take_sequence() {
    find_chunks();
    load_chunk(chunk_begin);
    if (begins_anew()) {
        [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) memory[n] = SUMS(0.0);
    } else {
        [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) {
            if (is_memory(n)) coopMatLoad(memory[n], pc.memory.at, memory_at(n), KEY_DIM, gl_CooperativeMatrixLayoutRowMajor);
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
        [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) {
            uint to = MEMORY_AT + memory_row(n) * KEY_WORDS + memory_column(n) / 8u;
            if (is_memory(n)) share(memory[n] * scale, to, KEY_WORDS);
        }
        barrier();
        uint kind = kinds[parity];
        bool takes = (kind & 1u) != 0u;
        float kept = kept_of[parity * CHUNK + max(ends[parity], 1u) - 1u];
        // What was of the chunk before is for the next.
        if (gl_LocalInvocationIndex == 0u) kinds[1u - parity] = ends[1u - parity] = largest[1u - parity] = 0u;
        correct(scale);
        if ((kind & 2u) != 0u) leave_out_others(parity);
        share_results(scale);
        if (takes) remember(kept, scale);
        find_largest(1u - parity);
        barrier();
        store_results(chunk, takes);
        changed = changed || takes;
    }
    if (!changed) return;
    [[unroll]] for (uint n = 0u; n < MEMORY_EACH; ++n) {
        if (is_memory(n)) coopMatStore(memory[n], pc.memory.at, memory_at(n), KEY_DIM, gl_CooperativeMatrixLayoutRowMajor);
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
