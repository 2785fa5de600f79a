// Attention of many tokens on matrix cores (flash-attention, Dao et al. 2022, arXiv:2205.14135). A workgroup takes
// neighbouring tokens of HEADS query heads that share a KV head, each of its subgroups a fragment of tokens of one
// head. It takes the positions that its tokens see, POSITIONS at a time, with running maxima and sums (online softmax).
// Keys and values are loaded into shared memory once; those of the next block are prefetched while this one is
// processed. known_layout.glsl and opaque_layout.glsl build the fragments: the former if the order of their elements is
// known, the latter otherwise.
layout(local_size_x_id = 0) in;

// A granule is eight values of a key, a run RUN values of a value. Those in a block format become f16 when they are
// stored in shared memory.
#ifdef KEYS_BLOCKS
#define keys_wide keys_words
#define KEY_GRANULE keys_unit
#define LOAD_KEY(row, granule) load_unit_keys(uvec2(pc.keys), HEAD_DIM, row, granule)
#define KEY_HALVES(granule) halves_of(vec2[](keys_pair(granule, 0u), keys_pair(granule, 1u), keys_pair(granule, 2u), keys_pair(granule, 3u)))
#else
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer keys_wide { uvec4 at[]; };
#define KEY_GRANULE uvec4
#define LOAD_KEY(row, granule) pc.keys.at[(row) * GRANULES + granule]
#define KEY_HALVES(granule) granule
#endif
#ifdef VALUES_BLOCKS
#define values_wide values_words
#define VALUE_RUN values_unit
#define LOAD_VALUE(row, run) load_unit_values(uvec2(pc.values), VALUE_DIM, row, run)
#define VALUE_HALVES(run) halves_of(vec2[](values_pair(run, 0u), values_pair(run, 1u), values_pair(run, 2u), values_pair(run, 3u)))
#define RUN_VALUE(run, d) float16_t(values_pair(run, d / 2u)[d % 2u])
#else
layout(buffer_reference, scalar, buffer_reference_align = RUN_BYTES) readonly buffer values_wide { RUN_WORDS at[]; };
#define VALUE_RUN RUN_WORDS
#define LOAD_VALUE(row, run) pc.values.at[(row) * (VALUE_DIM / RUN) + run]
#define VALUE_HALVES(run) run
#define RUN_VALUE(run, d) unpackFloat2x16(run[d / 2u])[d % 2u]
#endif

uvec4 halves_of(vec2 pairs[4]) {
    uvec4 words;
    [[unroll]] for (uint i = 0u; i < 4u; ++i) words[i] = packFloat2x16(f16vec2(pairs[i]));
    return words;
}

layout(push_constant, scalar) uniform Push {
    q_ref q;
    keys_wide keys;
    values_wide values;
    positions_ref positions;
    sequences_ref sequences;
    pages_ref pages;
    y_ref y;
#ifdef SINKS
    sinks_ref sinks;
#endif
    uint tokens;
    uint ratio; // query heads per KV head
    uint kv_heads, slots;
    uint sequence_count;
    uint table; // pages per sequence
    uint capacity; // positions that the page table can hold
    uint window;
    uvec2 q_strides, y_strides; // between tokens, between heads
    float scale;
} pc;

const uint TILES = POSITIONS / FRAGMENT;    // fragments of positions
const uint TOKEN_TILES = SUBGROUPS / HEADS; // fragments of tokens
const uint THREADS = SUBGROUPS * SUBGROUP;
const uint GRANULES = HEAD_DIM / 8u;        // runs of eight values of a key
const uint KEYS_EACH = (POSITIONS * GRANULES + THREADS - 1u) / THREADS; // loads per invocation
const int NO_POSITION = 0x7fffffff;
// MASKED is the score of masked positions, LOWEST, which is larger, the maximum over none: differences are finite, and
// their exponentials zero.
const float MASKED = -3.0e38;
const float LOWEST = -1.0e38;
// Scores are multiplied by this, so that exp becomes exp2.
const float LOG2_E = 1.44269504;

// Per token of this lane's rows.
int position[SLOTS];
uint sequence[SLOTS];
float maximum[SLOTS];
float total[SLOTS];

float row_max(float x) {
    [[unroll]] for (uint distance = 1u; distance < LANES_PER_ROW; distance *= 2u) x = max(x, subgroupShuffleXor(x, distance));
    return x;
}

float row_sum(float x) {
    [[unroll]] for (uint distance = 1u; distance < LANES_PER_ROW; distance *= 2u) x += subgroupShuffleXor(x, distance);
    return x;
}

// Prefetched keys of the next block.
KEY_GRANULE next_keys[KEYS_EACH];

uint sequence_of(uint token) { return min(load_sequences(pc.sequences, token), pc.sequence_count - 1u); }

// Returns the first slot of a block of positions, which lies in one page.
uint slot_of(uint current, int base) {
    uint page = load_pages(pc.pages, current * pc.table + uint(base) / PAGE_SIZE);
    return min(page, (pc.slots - 1u) / PAGE_SIZE) * PAGE_SIZE + uint(base) % PAGE_SIZE;
}

// Loads positions and sequences of the tokens from `first` on; they are padding unless `exist`.
void find_tokens(uint first, bool exist) {
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
        uint token = first + lane_row() + slot * ROWS_EACH;
        bool inside = exist && token < pc.tokens;
        token = min(token, pc.tokens - 1u);
        position[slot] = inside ? load_positions(pc.positions, token) : -1;
        sequence[slot] = sequence_of(token);
        maximum[slot] = LOWEST;
        total[slot] = 0.0;
    }
}

// Returns the offset of the query of a slot's token.
uint query_at(uint first, uint slot, uint head) {
    uint token = min(first + lane_row() + slot * ROWS_EACH, pc.tokens - 1u);
    return token * pc.q_strides.x + head * pc.q_strides.y;
}

// Whether a token sees a position of the sequence `current`.
bool sees(uint slot, uint current, int seen) {
    int own = position[slot];
    return seen <= own && uint(own - seen) < pc.window && sequence[slot] == current;
}

// Declared here, defined in known_layout.glsl and opaque_layout.glsl. Loads the queries of tokens from `first` on.
void load_query(uint first, uint head);
// Prefetches the values of a block, as load_block does keys.
void load_values(uint slot, uint kv_head, int last);
// Stores the prefetched block in shared memory.
void store_block();
// Attends over the block of a sequence's positions in shared memory; `whole` if every token sees all of it.
void attend(uint current, int base, bool whole);
// Stores the outputs of tokens from `first` on, each times its factor.
void store_rows(uint first, uint head, float factors[SLOTS]);

// Prefetches the block of positions whose first is in `slot`, clamped to its position `last`.
void load_block(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        uint row = min(slot + min(number / GRANULES, uint(last)), pc.slots - 1u);
        next_keys[i] = LOAD_KEY(row * pc.kv_heads + kv_head, number % GRANULES);
    }
    load_values(slot, kv_head, last);
}

// Positions from the first to the last that some token sees; empty if last < first.
struct Span { int first, last; };

const Span EMPTY_SPAN = Span(NO_POSITION, -1);

// Extends the span by the positions that a token at `at` sees.
Span extend(Span span, int at) {
    int first = uint(at) < pc.window ? 0 : at - int(pc.window - 1u);
    return Span(min(span.first, first), max(span.last, at));
}

// The workgroup's tokens. Each subgroup looks at all of them, so that all subgroups take the same blocks.
struct Tokens { uint first, last; };

uint token_of(Tokens all, uint step) { return min(all.first + step * SUBGROUP + gl_SubgroupInvocationID, all.last); }

const uint TOKEN_STEPS = (TOKEN_TILES * FRAGMENT + SUBGROUP - 1u) / SUBGROUP;

// Returns the tokens' lowest sequence that is at lowest `from`; ~0 if there is none.
uint next_sequence(Tokens all, uint from) {
    uint next = ~0u;
    [[unroll]] for (uint step = 0u; step < TOKEN_STEPS; ++step) {
        uint token = token_of(all, step);
        uint own = sequence_of(token);
        if (load_positions(pc.positions, token) >= 0 && own >= from) next = min(next, own);
    }
    return subgroupMin(next);
}

// Returns the positions that the tokens of a sequence see.
Span seen_of(Tokens all, uint current) {
    Span span = EMPTY_SPAN;
    [[unroll]] for (uint step = 0u; step < TOKEN_STEPS; ++step) {
        uint token = token_of(all, step);
        int at = load_positions(pc.positions, token);
        if (at >= 0 && sequence_of(token) == current) span = extend(span, at);
    }
    return Span(subgroupMin(span.first), min(subgroupMax(span.last), int(pc.capacity) - 1));
}

// Takes the blocks that the workgroup's tokens of a sequence see.
void attend_sequence(Tokens all, uint current, uint kv_head) {
    Span seen = seen_of(all, current);
    // Of the subgroup's tokens: all of them see positions up to `lowest`, if all belong to the sequence.
    int lowest = NO_POSITION;
    int highest = -1;
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        int own = sequence[r] == current ? position[r] : -1;
        lowest = min(lowest, own);
        highest = max(highest, own);
    }
    lowest = subgroupMin(lowest);
    highest = subgroupMax(highest);
    if (seen.last < seen.first) return;
    int base = seen.first / int(POSITIONS) * int(POSITIONS);
    load_block(slot_of(current, base), kv_head, seen.last - base);
    // After the last block, the prefetch repeats it: it is never waited for.
    int last = seen.last / int(POSITIONS) * int(POSITIONS);
    uint slot = slot_of(current, min(base + int(POSITIONS), last));
    for (; base <= last; base += int(POSITIONS)) {
        int next = min(base + int(POSITIONS), last);
        barrier();
        store_block();
        barrier();
        load_block(slot, kv_head, seen.last - next);
        slot = slot_of(current, min(next + int(POSITIONS), last));
        bool whole = lowest - base >= int(POSITIONS) - 1 && uint(highest - base) < pc.window;
        attend(current, base, whole);
    }
}

void store_results(uint first, uint head) {
    float factors[SLOTS];
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float sum = row_sum(total[r]);
#ifdef SINKS
        // Beside 2¹²⁶, other weights vanish.
        sum += exp2(min(load_sinks(pc.sinks, head) * LOG2_E - maximum[r], 126.0));
#endif
        factors[r] = maximum[r] > LOWEST ? 1.0 / sum : 0.0;
    }
    store_rows(first, head, factors);
}

void main() UNIFORM_FLOW {
    // The last tokens see the most positions, so they are scheduled first.
    uint tiles = (pc.tokens + FRAGMENT - 1u) / FRAGMENT;
    uint begun = gl_WorkGroupID.y * TOKEN_TILES;
    uint left = tiles - begun;
    Tokens all = Tokens((left - min(left, TOKEN_TILES)) * FRAGMENT, min(left * FRAGMENT, pc.tokens) - 1u);
    // Subgroups without tokens still load blocks for the others.
    uint own = gl_SubgroupID / HEADS;
    bool has_tokens = own < left;
    uint first = has_tokens ? (left - 1u - own) * FRAGMENT : 0u;
    uint head = gl_WorkGroupID.x * HEADS + gl_SubgroupID % HEADS;
    find_tokens(first, has_tokens);
    load_query(first, head);
    uint current = next_sequence(all, 0u);
    while (current != ~0u) {
        attend_sequence(all, current, head / pc.ratio);
        current = next_sequence(all, current + 1u);
    }
    if (has_tokens) store_results(first, head);
}
