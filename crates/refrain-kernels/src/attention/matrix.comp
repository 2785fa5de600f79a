// Attention of many tokens on matrix cores (Dao et al. 2022, arXiv:2205.14135). A workgroup takes neighbouring tokens
// of HEADS query heads that share a key head, each of its subgroups a fragment of tokens of one head. It goes through
// the positions that its tokens see, POSITIONS at a time, with running maxima and sums: keys and values come to shared
// memory once, and those of the next block are under way while this one is worked on. How fragments are made of them
// stands elsewhere, by what is known of their order.
layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer keys_wide { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = RUN_BYTES) readonly buffer values_wide { RUN_WORDS at[]; };

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
    uint ratio; // query heads per key head
    uint kv_heads, slots;
    uint sequence_count;
    uint table; // pages per sequence
    uint reach; // positions that the table can hold
    uint window;
    uvec2 q_strides, y_strides; // between tokens, between heads
    float scale;
} pc;

const uint TILES = POSITIONS / FRAGMENT;    // fragments of positions
const uint TOKEN_TILES = SUBGROUPS / HEADS; // fragments of tokens
const uint THREADS = SUBGROUPS * SUBGROUP;
const uint GRANULES = HEAD_DIM / 8u;        // runs of eight values of a key
const uint KEYS_EACH = (POSITIONS * GRANULES + THREADS - 1u) / THREADS; // that an invocation brings
const int NOWHERE = 0x7fffffff;
// A score of what is not seen, and, larger, a maximum of none: differences are finite, and their powers zero.
const float MASKED = -3.0e38;
const float LOWEST = -1.0e38;
// So that exponentials are powers of two.
const float LOG2_E = 1.44269504;

// Of the tokens of which this lane has a part.
int position[SLOTS];
uint sequence[SLOTS];
float maximum[SLOTS];
float total[SLOTS];

float join_max(float x) {
    [[unroll]] for (uint apart = 1u; apart < LANES_PER_ROW; apart *= 2u) x = max(x, subgroupShuffleXor(x, apart));
    return x;
}

float join_sum(float x) {
    [[unroll]] for (uint apart = 1u; apart < LANES_PER_ROW; apart *= 2u) x += subgroupShuffleXor(x, apart);
    return x;
}

// Keys that are under way to shared memory.
uvec4 next_keys[KEYS_EACH];

uint sequence_of(uint token) { return min(load_sequences(pc.sequences, token), pc.sequence_count - 1u); }

// The first slot of a block of positions, which lies in one page.
uint slot_of(uint current, int base) {
    uint page = load_pages(pc.pages, current * pc.table + uint(base) / PAGE_SIZE);
    return min(page, (pc.slots - 1u) / PAGE_SIZE) * PAGE_SIZE + uint(base) % PAGE_SIZE;
}

// Tokens from `first` on, none of them if there `are` none.
void find_tokens(uint first, bool are) {
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
        uint token = first + lane_row() + slot * ROWS_EACH;
        bool inside = are && token < pc.tokens;
        token = min(token, pc.tokens - 1u);
        position[slot] = inside ? load_positions(pc.positions, token) : -1;
        sequence[slot] = sequence_of(token);
        maximum[slot] = LOWEST;
        total[slot] = 0.0;
    }
}

// Where the query of the token of a slot begins.
uint query_at(uint first, uint slot, uint head) {
    uint token = min(first + lane_row() + slot * ROWS_EACH, pc.tokens - 1u);
    return token * pc.q_strides.x + head * pc.q_strides.y;
}

// Whether a token sees a position of the sequence `current`.
bool sees(uint slot, uint current, int seen) {
    int own = position[slot];
    return seen <= own && uint(own - seen) < pc.window && sequence[slot] == current;
}

// Loads the queries of tokens from `first` on.
void load_query(uint first, uint head);
// Begins to load the values of a block, as keys.
void load_values(uint slot, uint kv_head, int last);
// Puts what was loaded where all subgroups find it.
void store_block();
// Attends over the block of a sequence's positions that is in shared memory; `whole` where every token sees all of it.
void attend(uint current, int base, bool whole);
// Stores the results of tokens from `first` on, each times its factor.
void store_rows(uint first, uint head, float factors[SLOTS]);

// Begins to load the block of positions whose first is in `slot`, none beyond the `last` of them.
void load_block(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        uint row = min(slot + min(number / GRANULES, uint(last)), pc.slots - 1u);
        next_keys[i] = pc.keys.at[(row * pc.kv_heads + kv_head) * GRANULES + number % GRANULES];
    }
    load_values(slot, kv_head, last);
}

// Positions from the first to the last that some tokens see; none where the last comes before it.
struct Span { int first, last; };

const Span NOTHING = Span(NOWHERE, -1);

// With what a token at a position sees.
Span joined(Span span, int at) {
    int first = uint(at) < pc.window ? 0 : at - int(pc.window - 1u);
    return Span(min(span.first, first), max(span.last, at));
}

// The workgroup's tokens. Each subgroup looks at all of them, so that all agree on their way.
struct Tokens { uint first, last; };

uint token_of(Tokens all, uint turn) { return min(all.first + turn * SUBGROUP + gl_SubgroupInvocationID, all.last); }

const uint TURNS = (TOKEN_TILES * FRAGMENT + SUBGROUP - 1u) / SUBGROUP;

// Their first sequence from `least` on; ~0 where there is none.
uint next_sequence(Tokens all, uint least) {
    uint next = ~0u;
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint token = token_of(all, turn);
        uint own = sequence_of(token);
        if (load_positions(pc.positions, token) >= 0 && own >= least) next = min(next, own);
    }
    return subgroupMin(next);
}

// What those of a sequence see.
Span seen_of(Tokens all, uint current) {
    Span span = NOTHING;
    [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
        uint token = token_of(all, turn);
        int at = load_positions(pc.positions, token);
        if (at >= 0 && sequence_of(token) == current) span = joined(span, at);
    }
    return Span(subgroupMin(span.first), min(subgroupMax(span.last), int(pc.reach) - 1));
}

// Goes through the blocks that the workgroup's tokens of a sequence see.
void attend_sequence(Tokens all, uint current, uint kv_head) {
    Span seen = seen_of(all, current);
    // Of the subgroup's tokens: positions up to `least` are seen by all, if they all are the sequence's.
    int least = NOWHERE;
    int most = -1;
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        int own = sequence[r] == current ? position[r] : -1;
        least = min(least, own);
        most = max(most, own);
    }
    least = subgroupMin(least);
    most = subgroupMax(most);
    if (seen.last < seen.first) return;
    int base = seen.first / int(POSITIONS) * int(POSITIONS);
    load_block(slot_of(current, base), kv_head, seen.last - base);
    // Of the last block again where there is no next: what is asked for is not waited for then.
    int last = seen.last / int(POSITIONS) * int(POSITIONS);
    uint slot = slot_of(current, min(base + int(POSITIONS), last));
    for (; base <= last; base += int(POSITIONS)) {
        int next = min(base + int(POSITIONS), last);
        barrier();
        store_block();
        barrier();
        load_block(slot, kv_head, seen.last - next);
        slot = slot_of(current, min(next + int(POSITIONS), last));
        bool whole = least - base >= int(POSITIONS) - 1 && uint(most - base) < pc.window;
        attend(current, base, whole);
    }
}

void store_results(uint first, uint head) {
    float factors[SLOTS];
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float sum = join_sum(total[r]);
#ifdef SINKS
        // 2¹²⁶ leaves nothing of the others.
        sum += exp2(min(load_sinks(pc.sinks, head) * LOG2_E - maximum[r], 126.0));
#endif
        factors[r] = maximum[r] > LOWEST ? 1.0 / sum : 0.0;
    }
    store_rows(first, head, factors);
}

void main() UNIFORM_FLOW {
    // The last tokens see most: they begin.
    uint tiles = (pc.tokens + FRAGMENT - 1u) / FRAGMENT;
    uint begun = gl_WorkGroupID.y * TOKEN_TILES;
    uint left = tiles - begun;
    Tokens all = Tokens((left - min(left, TOKEN_TILES)) * FRAGMENT, min(left * FRAGMENT, pc.tokens) - 1u);
    // Subgroups that have no tokens help the others.
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
