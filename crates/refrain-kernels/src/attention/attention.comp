// A workgroup computes HEADS query heads, which share a KV head, of one token. Each of its ROWS rows of invocations
// takes its own positions, four at a time. A head's values are spread over LANES invocations in pairs. A row keeps its
// own running maximum, sum and output (online softmax); at the end the rows are combined. With VALUES_DIFFER, heads of
// values and keys have different dimensions; PAIRS suffices for both.
#if UNROLL_PAIRS
#define PAIR_LOOP [[unroll]]
#else
#define PAIR_LOOP [[dont_unroll]]
#endif

layout(constant_id = 5) const uint PAIRS = 1; // pairs of values per invocation
layout(constant_id = 6) const uint HEADS = 1;
layout(constant_id = 7) const uint PAGE_SIZE = 64;

#ifdef KEYS_BLOCKS
#define keys_pairs keys_words
#define KEY_ROW(row) (row)
#define KEY_PAIR(at, pair) load_pair_keys(uvec2(pc.keys), pc.head_dim, at, pair)
#else
#define KEY_ROW(row) ((row) * (pc.head_dim / 2u))
#define KEY_PAIR(at, pair) load2_keys(pc.keys, at + pair)
#endif
#ifdef VALUES_BLOCKS
#define values_pairs values_words
#define VALUE_ROW(row) (row)
#define VALUE_PAIR(at, pair) load_pair_values(uvec2(pc.values), VALUE_DIM, at, pair)
#else
#define VALUE_ROW(row) ((row) * (VALUE_DIM / 2u))
#define VALUE_PAIR(at, pair) load2_values(pc.values, at + pair)
#endif

layout(push_constant, scalar) uniform Push {
    q_ref q;
    keys_pairs keys;
    values_pairs values;
    positions_ref positions;
    sequences_ref sequences;
    pages_ref pages;
    y_ref y;
#ifdef SINKS
    sinks_ref sinks;
#endif
    uint ratio;    // query heads per KV head
    uint kv_heads, head_dim, slots;
    uint sequence_count;
    uint table;    // pages per sequence
    uint capacity; // positions that the page table can hold
    uint window;
    uvec2 q_strides, y_strides; // between tokens, between heads
    float scale;
#ifdef VALUES_DIFFER
    uint value_dim;
#endif
} pc;

#ifdef VALUES_DIFFER
#define VALUE_DIM pc.value_dim
#else
#define VALUE_DIM pc.head_dim
#endif

// Stands for minus infinity, whose differences would be NaN.
const float MASKED = -3.0e38;
// Stands for scores that are infinite or not a number, as those of keys beyond f16: the result is not a number then.
const float OVERFLOW = 3.2e38;

// Returns scores, or OVERFLOW.
vec4 bounded(vec4 scores) { return mix(vec4(OVERFLOW), scores, lessThan(scores, vec4(OVERFLOW))); }
float not_a_number() { return uintBitsToFloat(0x7fc00000u); }

shared float row_maxima[HEADS * ROWS];
shared float row_sums[HEADS * ROWS];

vec2 query[HEADS][PAIRS];
vec2 output_[HEADS][PAIRS];
float maximum[HEADS];
float total[HEADS];

// Below -87 the exponential is subnormal.
float weight_of(float score, float largest) { return exp(max(score - largest, -87.0)); }

// Weight of a head's sink relative to `largest`. Clamped to e⁸⁷, beside which other weights vanish.
float weight_of_sink(uint head, float largest) {
#ifdef SINKS
    return exp(min(load_sinks(pc.sinks, head) - largest, 87.0));
#else
    return 0.0;
#endif
}

uint slot_of(uint pages_at, uint position) {
    uint page = min(load_pages(pc.pages, pages_at + position / PAGE_SIZE), (pc.slots - 1u) / PAGE_SIZE);
    return min(page * PAGE_SIZE + position % PAGE_SIZE, pc.slots - 1u);
}

void load_query(uint token, uint head) {
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        uint at = token * pc.q_strides.x + (head + h) * pc.q_strides.y;
        PAIR_LOOP for (uint j = 0u; j < PAIRS; ++j) {
            uint d = 2u * (lane() + j * LANES);
            bool inside = d < pc.head_dim;
            query[h][j] = inside ? vec2(load_q(pc.q, at + d), load_q(pc.q, at + d + 1u)) * pc.scale : vec2(0.0);
            output_[h][j] = vec2(0.0);
        }
        maximum[h] = MASKED;
        total[h] = 0.0;
    }
}

// Attends over positions base … base + 3 that are below `end`.
void attend(uint pages_at, uint kv_head, uint base, uint end) {
    bvec4 exists = lessThan(uvec4(base) + uvec4(0u, 1u, 2u, 3u), uvec4(end));
    vec2 key[4][PAIRS], value[4][PAIRS];
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        uint slot = slot_of(pages_at, min(base + i, end - 1u));
        uint at = KEY_ROW(slot * pc.kv_heads + kv_head);
#if defined VALUES_DIFFER || defined KEYS_BLOCKS || defined VALUES_BLOCKS
        uint value_at = VALUE_ROW(slot * pc.kv_heads + kv_head);
#else
        uint value_at = at;
#endif
        PAIR_LOOP for (uint j = 0u; j < PAIRS; ++j) {
            uint pair = lane() + j * LANES;
            bool inside = 2u * pair < pc.head_dim;
            key[i][j] = inside ? KEY_PAIR(at, pair) : vec2(0.0);
#ifdef VALUES_DIFFER
            value[i][j] = 2u * pair < VALUE_DIM ? VALUE_PAIR(value_at, pair) : vec2(0.0);
#else
            value[i][j] = inside ? VALUE_PAIR(value_at, pair) : vec2(0.0);
#endif
        }
    }
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        vec4 products = vec4(0.0);
        PAIR_LOOP for (uint j = 0u; j < PAIRS; ++j) {
            [[unroll]] for (uint i = 0u; i < 4u; ++i) products[i] += dot(query[h][j], key[i][j]);
        }
        vec4 scores = mix(vec4(MASKED), bounded(sum_lanes(products)), exists);
        float largest = max(maximum[h], max(max(scores.x, scores.y), max(scores.z, scores.w)));
        vec4 weights = mix(vec4(0.0), exp(max(scores - largest, vec4(-87.0))), exists);
        float shrink = weight_of(maximum[h], largest);
        maximum[h] = largest;
        total[h] = total[h] * shrink + dot(weights, vec4(1.0));
        PAIR_LOOP for (uint j = 0u; j < PAIRS; ++j) {
            output_[h][j] *= shrink;
            [[unroll]] for (uint i = 0u; i < 4u; ++i) output_[h][j] += weights[i] * value[i][j];
        }
    }
}

// Returns the rows' largest score for head `h` and the sum of their weights relative to it.
void combine_totals(uint h, out float largest, out float sum) {
    largest = MASKED;
    for (uint r = 0u; r < ROWS; ++r) largest = max(largest, row_maxima[h * ROWS + r]);
    sum = 0.0;
    for (uint r = 0u; r < ROWS; ++r) sum += row_sums[h * ROWS + r] * weight_of(row_maxima[h * ROWS + r], largest);
}

void combine_rows(uint token, uint head) {
    uint row = row_in_group();
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        if (lane() == 0u) {
            row_maxima[h * ROWS + row] = maximum[h];
            row_sums[h * ROWS + row] = total[h];
        }
    }
    barrier();
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        uint at = token * pc.y_strides.x + (head + h) * pc.y_strides.y;
        float largest, sum;
        combine_totals(h, largest, sum);
        float factor = weight_of(maximum[h], largest);
#if PARTIAL
        at += gl_WorkGroupID.z * (VALUE_DIM + 2u);
        if (gl_LocalInvocationIndex == 0u) {
            store_y(pc.y, at + VALUE_DIM, largest);
            store_y(pc.y, at + VALUE_DIM + 1u, sum);
        }
#else
        factor = sum > 0.0 ? factor / (sum + weight_of_sink(head + h, largest)) : 0.0;
        if (largest >= OVERFLOW) factor = not_a_number();
#endif
        PAIR_LOOP for (uint j = 0u; j < PAIRS; ++j) {
            lane_values[row * LANES + lane()].xy = output_[h][j] * factor;
            barrier();
            uint d = 2u * (lane() + j * LANES);
            if (row == 0u && d < VALUE_DIM) {
                vec2 combined = vec2(0.0);
                for (uint r = 0u; r < ROWS; ++r) combined += lane_values[r * LANES + lane()].xy;
                store_y(pc.y, at + d, combined.x);
                store_y(pc.y, at + d + 1u, combined.y);
            }
            barrier();
        }
    }
}

void main() UNIFORM_FLOW {
    uint token = gl_WorkGroupID.y;
    uint head = gl_WorkGroupID.x * HEADS;
    int position = load_positions(pc.positions, token);
    uint end = position < 0 || pc.slots == 0u || pc.sequence_count == 0u ? 0u : min(uint(position) + 1u, pc.capacity);
    uint first = uint(max(position, 0)) + 1u;
    first = first > pc.window ? first - pc.window : 0u;
#if PARTIAL
    // This workgroup's split of the positions.
    uint split = (end - min(first, end) + gl_NumWorkGroups.z - 1u) / gl_NumWorkGroups.z;
    split = (split + 4u * ROWS - 1u) / (4u * ROWS) * (4u * ROWS);
    first = min(first + gl_WorkGroupID.z * split, end);
    end = min(first + split, end);
#endif
    uint sequence = min(load_sequences(pc.sequences, token), pc.sequence_count - 1u);
    uint pages_at = sequence * pc.table;
    load_query(token, head);
    // Bounds are uniform across the workgroup, since reductions may need all its invocations.
    for (uint base = first; base < end; base += 4u * ROWS) {
        attend(pages_at, head / pc.ratio, base + 4u * row_in_group(), end);
    }
    combine_rows(token, head);
}
