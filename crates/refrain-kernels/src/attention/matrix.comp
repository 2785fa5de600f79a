// Attention of many tokens on matrix cores (Dao et al. 2022, arXiv:2205.14135). A subgroup takes a fragment of
// tokens of one query head and goes through the positions that they see, POSITIONS at a time, with running maxima
// and sums; subgroups of a workgroup share a key head. Keys and values go from memory, through the caches, to
// registers: of a head's values each lane takes those that lie together, in whatever order that makes, since sums
// over them do not depend on it, and results are stored where they belong.
layout(local_size_x_id = 0) in;

// Values of a head, where they are not as many as those of a key.
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer keys_wide { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer values_wide { RUN_WORDS at[]; };

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

const uint DEPTHS = HEAD_DIM / FRAGMENT;    // fragments along a key
const uint VALUE_DEPTHS = VALUE_DIM / FRAGMENT; // and along a value
const uint TILES = POSITIONS / FRAGMENT;    // fragments of positions
const uint BLOCKS = HEAD_DIM / (8u * LANES_PER_ROW);  // runs of eight values that a lane takes of a key
const uint RUNS = VALUE_DIM / (RUN * ROWS_EACH);       // runs of RUN values that a lane takes of a position's value
// Stands for minus infinity, of which differences would be NaN.
const float MASKED = -3.0e38;

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

void load_query(uint first, uint head) {
    // So that exponentials are powers of two.
    float scale = pc.scale * 1.44269504;
    [[unroll]] for (uint slot = 0u; slot < SLOTS; ++slot) {
        uint token = first + lane_row() + slot * ROWS_EACH;
        bool inside = token < pc.tokens;
        token = min(token, pc.tokens - 1u);
        position[slot] = inside ? load_positions(pc.positions, token) : -1;
        sequence[slot] = min(load_sequences(pc.sequences, token), pc.sequence_count - 1u);
        maximum[slot] = MASKED;
        total[slot] = 0.0;
        uint at = token * pc.q_strides.x + head * pc.q_strides.y;
        [[unroll]] for (uint depth = 0u; depth < DEPTHS; ++depth) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
                uint value = depth * VALUES + v;
                uint d = (value / 8u * LANES_PER_ROW + lane_part()) * 8u + value % 8u;
                float x = load_q(pc.q, at + d) * scale;
                query[depth][slot * VALUES + v] = float16_t(clamp(x, -65504.0, 65504.0));
            }
        }
    }
}

// The first slot of a block of positions, which lies in one page.
uint slot_of(uint current, uint base) {
    uint page = load_pages(pc.pages, current * pc.table + base / PAGE_SIZE);
    return min(page, (pc.slots - 1u) / PAGE_SIZE) * PAGE_SIZE + base % PAGE_SIZE;
}

// A lane's part of a fragment of keys: loaded before it is wanted.
void load_keys(uint slot, uint kv_head, uint tile, uint last, out uvec4 keys[SLOTS][BLOCKS]) {
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        uint row = slot + min(tile * FRAGMENT + lane_row() + r * ROWS_EACH, last);
        uint at = (min(row, pc.slots - 1u) * pc.kv_heads + kv_head) * (HEAD_DIM / 8u) + lane_part();
        [[unroll]] for (uint b = 0u; b < BLOCKS; ++b) keys[r][b] = pc.keys.at[at + b * LANES_PER_ROW];
    }
}

SUMS scores_of(uvec4 keys[SLOTS][BLOCKS]) {
    SUMS scores = SUMS(0.0);
    [[unroll]] for (uint depth = 0u; depth < DEPTHS; ++depth) {
        B_FRAGMENT key;
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
                uint value = depth * VALUES + v;
                key[r * VALUES + v] = unpackFloat2x16(keys[r][value / 8u][value % 8u / 2u])[value % 2u];
            }
        }
        scores = coopMatMulAdd(query[depth], key, scores);
    }
    return scores;
}

// The same of values.
void load_values(uint slot, uint kv_head, uint tile, uint last, out RUN_WORDS values[VALUES][RUNS]) {
    [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
        uint row = slot + min(tile * FRAGMENT + COLUMN_OF(lane_part(), v), last);
        uint at = (min(row, pc.slots - 1u) * pc.kv_heads + kv_head) * (VALUE_DIM / RUN) + lane_row();
        [[unroll]] for (uint i = 0u; i < RUNS; ++i) values[v][i] = pc.values.at[at + i * ROWS_EACH];
    }
}

// Adds the values of a fragment of positions, weighted.
void mix(RUN_WORDS values[VALUES][RUNS], A_FRAGMENT weights) {
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        B_FRAGMENT value;
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            uint d = depth * SLOTS + r;
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
                value[r * VALUES + v] = unpackFloat2x16(values[v][d / RUN][d % RUN / 2u])[d % 2u];
            }
        }
        mixed[depth] = coopMatMulAdd(weights, value, mixed[depth]);
    }
}

// A block of positions base … base + POSITIONS - 1, none beyond `last` of them.
struct Positions { uint base, slot, last; };

Positions positions_at(uint current, int base, int last) {
    return Positions(uint(base), slot_of(current, uint(base)), uint(last - base));
}

// Attends over a block of a sequence's positions, of whose keys the first are loaded, and loads the first of the
// next block; `whole` where every token sees all of them.
void attend(uint current, uint kv_head, Positions here, Positions next, bool whole, inout uvec4 keys[SLOTS][BLOCKS]) {
    SUMS scores[TILES];
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
        uvec4 now[SLOTS][BLOCKS] = keys;
        if (tile + 1u < TILES) load_keys(here.slot, kv_head, tile + 1u, here.last, keys);
        scores[tile] = scores_of(now);
    }
    RUN_WORDS values[VALUES][RUNS];
    load_values(here.slot, kv_head, 0u, here.last, values);
    if (!whole) {
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
                int seen = int(here.base + tile * FRAGMENT + COLUMN_OF(lane_part(), i % VALUES));
                int own = position[i / VALUES];
                bool sees = seen <= own && uint(own - seen) < pc.window && sequence[i / VALUES] == current;
                scores[tile][i] = sees ? scores[tile][i] : MASKED;
            }
        }
    }
    float top[SLOTS], kept[SLOTS];
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        top[r] = maximum[r];
        [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) top[r] = max(top[r], scores[tile][r * VALUES + v]);
        }
        top[r] = join_max(top[r]);
        kept[r] = exp2(max(maximum[r] - top[r], -126.0));
        maximum[r] = top[r];
        total[r] *= kept[r];
    }
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) mixed[depth][i] *= kept[i / VALUES];
    }
    [[unroll]] for (uint tile = 0u; tile < TILES; ++tile) {
        A_FRAGMENT weights;
        [[unroll]] for (uint i = 0u; i < ELEMENTS; ++i) {
            float score = scores[tile][i];
            // Of what no token of the row sees, a maximum that stands for none would make ones.
            float weight = score == MASKED ? 0.0 : exp2(max(score - top[i / VALUES], -126.0));
            total[i / VALUES] += weight;
            weights[i] = float16_t(weight);
        }
        RUN_WORDS now[VALUES][RUNS] = values;
        if (tile + 1u < TILES) load_values(here.slot, kv_head, tile + 1u, here.last, values);
        else load_keys(next.slot, kv_head, 0u, next.last, keys);
        mix(now, weights);
    }
}

void attend_sequence(uint current, uint kv_head) {
    int last = -1;
    int least = 0x7fffffff;
    int first = 0x7fffffff;
    bool alone = true;
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        bool own = position[r] >= 0 && sequence[r] == current;
        alone = alone && own;
        if (!own) continue;
        last = max(last, position[r]);
        least = min(least, position[r]);
        first = min(first, uint(position[r]) < pc.window ? 0 : position[r] - int(pc.window - 1u));
    }
    last = min(subgroupMax(last), int(pc.reach) - 1);
    least = subgroupMin(least);
    first = subgroupMin(first);
    alone = subgroupMin(alone ? 1 : 0) == 1;
    if (last < first) return;
    uvec4 keys[SLOTS][BLOCKS];
    Positions here = positions_at(current, first / int(POSITIONS) * int(POSITIONS), last);
    load_keys(here.slot, kv_head, 0u, here.last, keys);
    while (true) {
        int base = int(here.base);
        // Of the last block the next is itself: what is loaded of it is not used.
        bool is_last = base + int(POSITIONS) > last;
        Positions next = positions_at(current, is_last ? base : base + int(POSITIONS), last);
        bool before = base + int(POSITIONS) - 1 <= least;
        bool within = uint(last - base) < pc.window;
        attend(current, kv_head, here, next, alone && before && within, keys);
        if (is_last) break;
        here = next;
    }
}

void main() UNIFORM_FLOW {
    // The last tokens see most: they begin.
    uint tiles = (pc.tokens + FRAGMENT - 1u) / FRAGMENT;
    uint tile = gl_WorkGroupID.y * (SUBGROUPS / HEADS) + gl_SubgroupID / HEADS;
    if (tile >= tiles) return;
    uint first = (tiles - 1u - tile) * FRAGMENT;
    uint head = gl_WorkGroupID.x * HEADS + gl_SubgroupID % HEADS;
    load_query(first, head);
    [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) mixed[depth] = SUMS(0.0);
    uint next = 0u;
    while (true) {
        uint current = ~0u;
        [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
            if (position[r] >= 0 && sequence[r] >= next) current = min(current, sequence[r]);
        }
        current = subgroupMin(current);
        if (current == ~0u) break;
        attend_sequence(current, head / pc.ratio);
        next = current + 1u;
    }
    [[unroll]] for (uint r = 0u; r < SLOTS; ++r) {
        uint token = first + lane_row() + r * ROWS_EACH;
        float sum = join_sum(total[r]);
#ifdef SINKS
        // 2¹²⁶ leaves nothing of the others.
        sum += sum > 0.0 ? exp2(min(load_sinks(pc.sinks, head) * 1.44269504 - maximum[r], 126.0)) : 0.0;
#endif
        float factor = sum > 0.0 ? 1.0 / sum : 0.0;
        uint at = token * pc.y_strides.x + head * pc.y_strides.y;
        [[unroll]] for (uint depth = 0u; depth < VALUE_DEPTHS; ++depth) {
            [[unroll]] for (uint v = 0u; v < VALUES; ++v) {
                uint column = COLUMN_OF(lane_part(), v);
                uint value = depth * SLOTS + column / ROWS_EACH;
                uint d = (value / RUN * ROWS_EACH + column % ROWS_EACH) * RUN + value % RUN;
                if (token < pc.tokens) store_y(pc.y, at + d, mixed[depth][r * VALUES + v] * factor);
            }
        }
    }
}
