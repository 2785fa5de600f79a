// Attention of many tokens on matrix cores (Dao et al. 2022, arXiv:2205.14135). A workgroup takes neighbouring tokens
// of HEADS query heads that share a key head, each of its subgroups a fragment of tokens of one head. It goes through
// the positions that its tokens see, POSITIONS at a time, with running maxima and sums: keys and values come to shared
// memory once, in the order in which lanes take them for fragments, and those of the next block are under way while
// this one is worked on. Of a head's values each lane takes those that lie together, in whatever order that makes, since
// sums over them do not depend on it, and results are stored where they belong.
layout(local_size_x_id = 0) in;

// Values of a head, where they are not as many as those of a key.
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif

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

const uint DEPTHS = HEAD_DIM / FRAGMENT;        // fragments along a key
const uint VALUE_DEPTHS = VALUE_DIM / FRAGMENT; // and along a value
const uint TILES = POSITIONS / FRAGMENT;        // fragments of positions
const uint GRANULES = HEAD_DIM / 8u;            // runs of eight values of a key
const uint RUNS = VALUE_DIM / (RUN * ROWS_EACH); // runs of RUN values of a position's value, for a lane
const uint RUN_DEPTHS = RUN / SLOTS;            // fragments that a lane's run is a part of
const uint TOKEN_TILES = SUBGROUPS / HEADS;     // fragments of tokens
const uint THREADS = SUBGROUPS * SUBGROUP;
const uint KEYS_EACH = (POSITIONS * GRANULES + THREADS - 1u) / THREADS;  // granules that an invocation brings
const uint VALUES_EACH = (TILES * RUNS + SUBGROUPS - 1u) / SUBGROUPS;    // runs of fragments that a subgroup brings
const int NOWHERE = 0x7fffffff;
// A score of what is not seen, and, larger, a maximum of none: differences are finite, and their powers zero.
const float MASKED = -3.0e38;
const float LOWEST = -1.0e38;

// Of a block, keys row by row, and values as fragments.
shared uvec4 keys[POSITIONS * GRANULES];
shared uvec4 values[TILES * VALUE_DEPTHS * SUBGROUP];

// What is under way there.
uvec4 next_keys[KEYS_EACH];
RUN_WORDS next_values[VALUES_EACH][VALUES];

A_FRAGMENT query[DEPTHS];
SUMS mixed[VALUE_DEPTHS];
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

// Eight halves as a lane keeps them in memory.
uvec4 words_of(float16_t part[ELEMENTS]) {
    uvec4 words;
    [[unroll]] for (uint w = 0u; w < 4u; ++w) words[w] = packFloat2x16(f16vec2(part[2u * w], part[2u * w + 1u]));
    return words;
}

uint sequence_of(uint token) { return min(load_sequences(pc.sequences, token), pc.sequence_count - 1u); }

// Tokens from `first` on, none of them if there `are` none.
void load_query(uint first, uint head, bool are) {
    // So that exponentials are powers of two.
    float scale = pc.scale * 1.44269504;
    uint starts[SLOTS];
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
        uint token = first + lane_row() + slot * ROWS_EACH;
        bool inside = are && token < pc.tokens;
        token = min(token, pc.tokens - 1u);
        position[slot] = inside ? load_positions(pc.positions, token) : -1;
        sequence[slot] = sequence_of(token);
        maximum[slot] = LOWEST;
        total[slot] = 0.0;
        starts[slot] = token * pc.q_strides.x + head * pc.q_strides.y;
    }
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
            // An exchange with itself: NVIDIA's compiler would keep floats, and round them anew for each block.
            uvec4 words = subgroupShuffle(words_of(parts[step]), gl_SubgroupInvocationID);
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                query[depth + step][i] = unpackFloat2x16(words[i / 2u])[i % 2u];
            }
        }
    }
}

// The first slot of a block of positions, which lies in one page.
uint slot_of(uint current, int base) {
    uint page = load_pages(pc.pages, current * pc.table + uint(base) / PAGE_SIZE);
    return min(page, (pc.slots - 1u) / PAGE_SIZE) * PAGE_SIZE + uint(base) % PAGE_SIZE;
}

// Begins to load the block of positions whose first is in `slot`, none beyond the `last` of them.
void load_block(uint slot, uint kv_head, int last) {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        uint row = min(slot + min(number / GRANULES, uint(last)), pc.slots - 1u);
        next_keys[i] = pc.keys.at[(row * pc.kv_heads + kv_head) * GRANULES + number % GRANULES];
    }
    [[unroll]] for (uint i = 0u; i < VALUES_EACH; ++i) {
        uint number = gl_SubgroupID + i * SUBGROUPS;
        uint run = number % RUNS * ROWS_EACH + lane_row();
        [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
            uint place = number / RUNS * FRAGMENT + COLUMN_OF(lane_part(), v);
            uint row = min(slot + min(place, uint(last)), pc.slots - 1u);
            next_values[i][v] = pc.values.at[(row * pc.kv_heads + kv_head) * (VALUE_DIM / RUN) + run];
        }
    }
}

// Where rows of keys begin in the same bank, every second has neighbouring groups of LANES_PER_ROW granules exchanged.
const bool EXCHANGES = GRANULES % (2u * LANES_PER_ROW) == 0u;

uint key_at(uint row, uint granule) {
    return row * GRANULES + (EXCHANGES ? granule ^ ((row & 1u) * LANES_PER_ROW) : granule);
}

// Where this lane's granules of even and of odd groups begin. From there on distances are known beforehand, so that a
// compiler has no addresses to compute.
uint key_bases[2];

void find_keys() {
    key_bases[0] = key_at(lane_row(), lane_part());
    key_bases[1] = key_at(lane_row(), LANES_PER_ROW + lane_part()) - LANES_PER_ROW;
}

// This lane's granule of a group, in the row that is `above` more than the lane's own.
uvec4 granule_of(uint above, uint group) {
    uint lies = EXCHANGES ? group ^ (above & 1u) : group;
    return keys[above * GRANULES + lies * LANES_PER_ROW + key_bases[lies % 2u]];
}

// A lane's part of the fragment of values that is number `depth` of a run: of VALUES positions, SLOTS values each.
uvec4 value_part(RUN_WORDS runs[VALUES], uint depth) {
    float16_t part[ELEMENTS];
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        uint d = depth * SLOTS + i / VALUES;
        part[i] = unpackFloat2x16(runs[i % VALUES][d / 2u])[d % 2u];
    }
    return words_of(part);
}

// Puts what was loaded where all subgroups find it.
void store_block() {
    [[unroll]] for (uint i = 0u; i < KEYS_EACH; ++i) {
        uint number = gl_LocalInvocationIndex + i * THREADS;
        if (KEYS_EACH * THREADS == POSITIONS * GRANULES || number < POSITIONS * GRANULES) {
            keys[key_at(number / GRANULES, number % GRANULES)] = next_keys[i];
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

// Queries times the keys of a fragment of positions.
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

// Adds the values of a fragment of positions, weighted.
void mix(uint tile, A_FRAGMENT weights) {
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        uvec4 words = values[(tile * VALUE_DEPTHS + depth) * SUBGROUP + gl_SubgroupInvocationID];
        B_FRAGMENT value;
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) value[i] = unpackFloat2x16(words[i / 2u])[i % 2u];
        mixed[depth] = coopMatMulAdd(weights, value, mixed[depth]);
    }
}

// Makes scores of positions that a token does not see as low as can be.
void mask(uint current, int first, inout SUMS scores) {
    [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
        int seen = first + int(COLUMN_OF(lane_part(), i % VALUES));
        int own = position[i / VALUES];
        bool sees = seen <= own && uint(own - seen) < pc.window && sequence[i / VALUES] == current;
        scores[i] = sees ? scores[i] : MASKED;
    }
}

// Attends over the block of a sequence's positions that is in shared memory; `whole` where every token sees all of it.
void attend(uint current, int base, bool whole) {
    SUMS scores[TILES];
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) scores[tile] = scores_of(tile);
    if (!whole) {
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            mask(current, base + int(tile * FRAGMENT), scores[tile]);
        }
    }
    float kept[SLOTS];
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        float top = maximum[r];
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) top = max(top, scores[tile][r * VALUES + v]);
        }
        top = join_max(top);
        kept[r] = exp2(maximum[r] - top);
        maximum[r] = top;
        total[r] *= kept[r];
    }
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) mixed[depth][i] *= kept[i / VALUES];
    }
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
        A_FRAGMENT weights;
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
            float weight = exp2(scores[tile][i] - maximum[i / VALUES]);
            total[i / VALUES] += weight;
            weights[i] = float16_t(weight);
        }
        mix(tile, weights);
    }
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

// Stores a lane's results of a token, times a factor.
void store_row(uint at, uint r, float factor) {
#if VALUES == 1
    // One of each fragment.
    uint column = COLUMN_OF(lane_part(), 0u);
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        uint value = depth * SLOTS + column / ROWS_EACH;
        uint d = (value / RUN * ROWS_EACH + column % ROWS_EACH) * RUN + value % RUN;
        store_y(pc.y, at + d, mixed[depth][r] * factor);
    }
#else
    // Whole runs.
    const uint each = VALUES / SLOTS;
    [[unroll]] for (uint four = 0u; four < RUNS * RUN; four += 4u) {
        [[unroll]] for (uint i = 0u; i < each; ++i) {
            vec4 results;
            [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                uint value = four + j;
                results[j] = mixed[value / SLOTS][r * VALUES + value % SLOTS * each + i] * factor;
            }
            uint run = four / RUN * ROWS_EACH + COLUMN_OF(lane_part(), i);
            store4_y(pc.y, at + run * RUN + four % RUN, results);
        }
    }
#endif
}

void store_results(uint first, uint head) {
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        uint token = first + lane_row() + r * ROWS_EACH;
        float sum = join_sum(total[r]);
#ifdef SINKS
        // 2¹²⁶ leaves nothing of the others.
        sum += exp2(min(load_sinks(pc.sinks, head) * 1.44269504 - maximum[r], 126.0));
#endif
        float factor = maximum[r] > LOWEST ? 1.0 / sum : 0.0;
        if (token < pc.tokens) store_row(token * pc.y_strides.x + head * pc.y_strides.y, r, factor);
    }
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
    load_query(first, head, has_tokens);
    find_keys();
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) mixed[depth] = SUMS(0.0);
    uint current = next_sequence(all, 0u);
    while (current != ~0u) {
        attend_sequence(all, current, head / pc.ratio);
        current = next_sequence(all, current + 1u);
    }
    if (has_tokens) store_results(first, head);
}
