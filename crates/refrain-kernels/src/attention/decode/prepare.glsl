// A workgroup takes HEADS query heads, which share a KV head, of one token, and a split of its positions. It first
// prepares the queries (and, if its split holds the token's own position, the key): norm and RoPE. Then it takes its
// positions tile by tile, together (tiles.glsl) or each subgroup for itself (subgroups.glsl). COLUMNS invocations lie
// along a head's values, in GROUPS that alternate over positions. A unit is UNIT neighbouring values of keys or values,
// one load. The last workgroup of a token's heads to finish combines the splits.
layout(constant_id = 5) const uint HEAD_DIM = 64;
layout(constant_id = 6) const uint HEADS = 1;
layout(constant_id = 7) const uint PAGE_SIZE = 64;
layout(constant_id = 8) const uint TILE = 32;     // positions
layout(constant_id = 10) const uint COLUMNS = 8;
layout(constant_id = 11) const uint GROUPS = 4;
layout(constant_id = 12) const uint RATIO = 1;    // query heads per KV head
layout(constant_id = 13) const uint KV_HEADS = 1;
layout(constant_id = 14) const uint ROTATED = 0;  // pairs of a head that RoPE rotates
layout(constant_id = 15) const float SCALE = 1.0;
layout(constant_id = 16) const float ROTATION_SCALE = 1.0;
layout(constant_id = 17) const float Q_EPS = 0.0;
layout(constant_id = 18) const float K_EPS = 0.0;
layout(constant_id = 19) const uint WINDOW = 0xffffffffu;
#ifdef VALUES_DIFFER
layout(constant_id = 20) const uint VALUE_DIM = 64;
#else
#define VALUE_DIM HEAD_DIM
#endif

const uint THREADS = ROWS * LANES;
// An invocation's number in its workgroup; those of a subgroup follow one another where this matters.
#ifdef BY_SUBGROUPS
#define INVOCATION (row_in_group() * LANES + lane())
#else
#define INVOCATION gl_LocalInvocationIndex
#endif
const uint UNITS = HEAD_DIM / UNIT;
#ifdef VALUES_DIFFER
const uint VALUE_UNITS = VALUE_DIM / UNIT;
#else
#define VALUE_UNITS UNITS
#endif
const uint PAIRS = UNIT / 2u;
// Units of a value per invocation, and values of a tile.
const uint SPAN = (VALUE_UNITS + COLUMNS - 1u) / COLUMNS;
const uint VALUE_STEPS = (TILE + GROUPS - 1u) / GROUPS;
// Values per invocation of queries, key and value, and of the rotation, before preparation.
const uint VECTOR_STEPS = (HEADS + ROWS) / ROWS;
const uint VECTOR_SPAN = (HEAD_DIM + LANES - 1u) / LANES;
const uint OWN = HEAD_DIM + VALUE_DIM;
const uint RAW_STEPS = (VALUE_DIM + THREADS - 1u) / THREADS;
const uint PAIR_STEPS = ROTATED / THREADS + 1u;
// Splits combined per step.
const uint SPLITS_PER_STEP = 8u;
// Stands for minus infinity, whose differences would be NaN.
const float MASKED = -3.0e38;
// Stands for scores that are infinite or not a number, as those of keys beyond f16: the result is not a number then.
const float OVERFLOW = 3.2e38;

// Returns a score, or OVERFLOW.
float bounded(float score) { return score < OVERFLOW ? score : OVERFLOW; }
float not_a_number() { return uintBitsToFloat(0x7fc00000u); }

// The queries, then the token's own key and value, rounded to the cache's dtype.
shared float vectors[HEADS * HEAD_DIM + OWN];
shared vec2 rotations[ROTATED + 1u]; // sine and cosine
shared float weights[HEADS * TILE];
shared float maxima[HEADS], totals[HEADS];
shared vec2 groups_values[HEADS * GROUPS * VALUE_DIM / 2u];
#if defined SINKS && !defined COMBINE_PASS
shared float sinks[HEADS];
float own_sink;
#endif

UNIT_TYPE values[VALUE_STEPS * SPAN];
vec2 sums[HEADS * SPAN * PAIRS];
float vector_values[VECTOR_STEPS * VECTOR_SPAN], vector_norm_weights[VECTOR_STEPS * VECTOR_SPAN];
float raw_value[RAW_STEPS];
float pair_frequencies[PAIR_STEPS];

uint token, head, kv_head, pages_at;
// This workgroup's positions, and whether the token's own position is the last of them.
uint first, end;
bool has_own;
uint own_position, own_slot;

// Below -87 the exponential is subnormal.
float weight_of(float score, float largest) { return exp(max(score - largest, -87.0)); }

// Adds the weight of the head's sink to the sum of weights relative to `largest`. Clamped to e⁸⁷, beside which other
// weights vanish. The sum is not a number if a score overflowed, and 0 only without positions.
float with_sink(uint h, float largest, float total) {
    if (largest >= OVERFLOW) return not_a_number();
#ifdef SINKS
#ifdef COMBINE_PASS
    float sink = load_sinks(pc.sinks, head + h);
#else
    float sink = sinks[h];
#endif
    total += total > 0.0 ? exp(min(sink - largest, 87.0)) : 0.0;
#endif
    return total;
}

// Whether every tile is within one page: true if tiles begin at multiples of their size. The page is then looked up
// once.
const bool HAS_ONE_PAGE = PAGE_SIZE % TILE == 0u && WINDOW == 0xffffffffu;

// Returns the first slot of the page of a position.
uint page_of(uint position) {
    return min(load_pages(pc.pages, pages_at + position / PAGE_SIZE), (SLOTS - 1u) / PAGE_SIZE) * PAGE_SIZE;
}

// Returns the first slot of the page of the tile from `base` on, to be passed to `slot_of`.
uint page_of_tile(uint base) { return HAS_ONE_PAGE ? page_of(min(base, end - 1u)) : 0u; }

uint slot_of(uint page, uint position) {
    return min((HAS_ONE_PAGE ? page : page_of(position)) + position % PAGE_SIZE, SLOTS - 1u) * KV_HEADS + kv_head;
}

// Finds this workgroup's positions; returns the number of splits that have any.
uint find_split() {
    int position = load_positions(pc.positions, token);
    uint row = load_sequences(pc.sequences, token);
    pages_at = min(row, SEQUENCES - 1u) * TABLE;
    bool exists = position >= 0 && SLOTS > 0u && SEQUENCES > 0u;
    end = exists ? min(uint(position) + 1u, TABLE * PAGE_SIZE) : 0u;
    first = end > 0u && uint(position) + 1u > WINDOW ? min(uint(position) + 1u - WINDOW, end) : 0u;
    own_position = uint(max(position, 0));
    bool inside = exists && row < SEQUENCES && own_position / PAGE_SIZE < TABLE;
    if (inside) own_slot = load_pages(pc.pages, pages_at + own_position / PAGE_SIZE) * PAGE_SIZE + own_position % PAGE_SIZE;
    uint count = end - first;
    uint split = (count + gl_NumWorkGroups.z - 1u) / gl_NumWorkGroups.z;
    split = max((split + TILE - 1u) / TILE, 1u) * TILE;
    uint last = end;
    first = min(first + gl_WorkGroupID.z * split, end);
    end = min(first + split, end);
    // A page that does not exist is neither written nor read as the token's own.
    has_own = inside && own_slot < SLOTS && end == last && first < end && end == own_position + 1u;
    return max((count + split - 1u) / split, 1u);
}

float norm_weight_of(bool is_key, uint d) {
#ifdef K_NORM
    if (is_key) return K_NORM_WEIGHT(d);
#endif
#ifdef Q_NORM
    if (!is_key) return Q_NORM_WEIGHT(d);
#endif
    return 1.0;
}

#ifndef Q_BETWEEN
#define Q_BETWEEN HEAD_DIM
#endif

// Issues the loads that do not depend on the position before anything else. A row of invocations takes a vector.
void load_vectors() {
    UNROLL for (uint step = 0u; step < VECTOR_STEPS; ++step) {
        uint number = step * ROWS + row_in_group();
        bool is_key = number >= HEADS;
        UNROLL for (uint i = 0u; i < VECTOR_SPAN; ++i) {
            uint d = min(lane() + i * LANES, HEAD_DIM - 1u);
            uint own = step * VECTOR_SPAN + i;
            vector_values[own] = is_key ? load_k(pc.k, token * K_STRIDE + kv_head * HEAD_DIM + d)
                                        : load_q(pc.q, token * Q_STRIDE + (head + number) * Q_BETWEEN + d);
            vector_norm_weights[own] = norm_weight_of(is_key, d);
        }
    }
    UNROLL for (uint step = 0u; step < RAW_STEPS; ++step) {
        uint d = min(gl_LocalInvocationIndex + step * THREADS, VALUE_DIM - 1u);
        raw_value[step] = load_v(pc.v, token * V_STRIDE + kv_head * VALUE_DIM + d);
    }
#if defined SINKS && !defined COMBINE_PASS
    own_sink = load_sinks(pc.sinks, head + min(gl_LocalInvocationIndex, HEADS - 1u));
#endif
#ifdef ROTATES
    UNROLL for (uint step = 0u; step < PAIR_STEPS; ++step) {
        uint pair = min(gl_LocalInvocationIndex + step * THREADS, ROTATED - 1u);
        pair_frequencies[step] = load_frequencies(pc.frequencies, pair);
    }
#endif
}

// Normalises queries and the key, and stores them and the value in shared memory.
void norm_vectors() {
    UNROLL for (uint step = 0u; step < RAW_STEPS; ++step) {
        uint d = gl_LocalInvocationIndex + step * THREADS;
        if (d < VALUE_DIM) vectors[(HEADS + 1u) * HEAD_DIM + d] = raw_value[step];
    }
    UNROLL for (uint step = 0u; step < VECTOR_STEPS; ++step) {
        uint number = step * ROWS + row_in_group();
        float factor = 1.0;
#if defined Q_NORM || defined K_NORM
        float squares = 0.0;
        UNROLL for (uint i = 0u; i < VECTOR_SPAN; ++i) {
            float value = vector_values[step * VECTOR_SPAN + i];
            if (lane() + i * LANES < HEAD_DIM) squares += value * value;
        }
        float mean = sum_lanes(squares) / float(HEAD_DIM);
#ifdef Q_NORM
        if (number < HEADS) factor = 1.0 / sqrt(mean + Q_EPS);
#endif
#ifdef K_NORM
        if (number >= HEADS) factor = 1.0 / sqrt(mean + K_EPS);
#endif
#endif
        UNROLL for (uint i = 0u; i < VECTOR_SPAN; ++i) {
            uint d = lane() + i * LANES;
            uint own = step * VECTOR_SPAN + i;
            if (number <= HEADS && d < HEAD_DIM) {
                vectors[number * HEAD_DIM + d] = vector_values[own] * (vector_norm_weights[own] * factor);
            }
        }
    }
}

void rotate_vectors() {
#ifdef ROTATES
    for (uint e = gl_LocalInvocationIndex; e < (HEADS + 1u) * ROTATED; e += THREADS) {
        uint pair = e % ROTATED;
        uint at = e / ROTATED * HEAD_DIM;
#if INTERLEAVED
        uint a = at + 2u * pair, b = a + 1u;
#else
        uint a = at + pair, b = a + ROTATED;
#endif
        vec2 sc = rotations[pair];
        float x = vectors[a], y = vectors[b];
        vectors[a] = x * sc.y - y * sc.x;
        vectors[b] = y * sc.y + x * sc.x;
    }
    barrier();
#endif
}

#ifdef CACHE_BITS
// In store_blocks.glsl.
void store_own();
#else
// Rounds the token's own key and value to the cache's dtype, word by word. One workgroup per KV head stores them in the
// cache.
void store_own() {
    const uint key_words = HEAD_DIM / WORD_VALUES;
    const uint value_words = VALUE_DIM / WORD_VALUES;
    bool stores = head % RATIO == 0u;
    uint row = own_slot * KV_HEADS + kv_head;
    for (uint number = gl_LocalInvocationIndex; number < key_words + value_words; number += THREADS) {
        uint at = HEADS * HEAD_DIM + number * WORD_VALUES;
        uint word = WORD_AT(at);
        [[unroll]] for (uint i = 0u; i < WORD_VALUES; ++i) vectors[at + i] = VALUES_OF(word)[i];
        bool is_key = number < key_words;
        uint at_word = is_key ? row * key_words + number : row * value_words + number - key_words;
        if (stores) stored_words_ref(is_key ? uvec2(pc.keys) : uvec2(pc.values)).at[at_word] = word;
    }
    barrier();
}
#endif

void prepare() {
#ifdef ROTATES
    UNROLL for (uint step = 0u; step < PAIR_STEPS; ++step) {
        uint pair = gl_LocalInvocationIndex + step * THREADS;
        if (pair >= ROTATED) break;
        precise float angle = float(own_position) * pair_frequencies[step];
        rotations[pair] = sincos(angle) * ROTATION_SCALE;
    }
#endif
    if (gl_LocalInvocationIndex < HEADS) {
        maxima[gl_LocalInvocationIndex] = MASKED;
        totals[gl_LocalInvocationIndex] = 0.0;
#if defined SINKS && !defined COMBINE_PASS
        sinks[gl_LocalInvocationIndex] = own_sink;
#endif
    }
    norm_vectors();
    barrier();
    rotate_vectors();
    if (has_own) store_own();
}
