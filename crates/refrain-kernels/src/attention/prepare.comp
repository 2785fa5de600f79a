// Norms and RoPE of queries and keys, and, with CACHES, the write of keys and values into the KV cache; without, there
// are only heads as queries, whose results are stored TWICE if wanted: y may be PADDED with tokens that are zeros. A row
// of invocations takes HEADS_PER_ROW heads of a token's queries and keys, which share rotation angles, and some of its
// values. An item is two units of a head, UNIT neighbouring values each: the two that RoPE rotates together, or
// neighbours. All loads of a row are issued before the first use.
layout(constant_id = 5) const uint HEAD_DIM = 64;
layout(constant_id = 6) const uint VALUE_DIM = 64;
layout(constant_id = 7) const uint HEADS = 1;     // of queries
layout(constant_id = 8) const uint KV_HEADS = 1;
layout(constant_id = 9) const uint PAIRS = 0;     // pairs of a head that RoPE rotates
layout(constant_id = 10) const uint HEADS_PER_ROW = 1;
layout(constant_id = 11) const float ROTATION_SCALE = 1.0;
layout(constant_id = 12) const float Q_EPS = 0.0;
layout(constant_id = 13) const float K_EPS = 0.0;

const uint ALL_HEADS = HEADS + KV_HEADS;
const uint TOKEN_ROWS = (ALL_HEADS + HEADS_PER_ROW - 1u) / HEADS_PER_ROW;
const uint VALUE_HEADS_PER_ROW = (KV_HEADS + TOKEN_ROWS - 1u) / TOKEN_ROWS;
const uint ITEMS = HEAD_DIM / UNIT / 2u;
const uint VALUE_ITEMS = VALUE_DIM / UNIT / 2u;
const uint ROTATED_ITEMS = PAIRS / UNIT;
// Items per invocation.
const uint SPAN = (ITEMS + LANES - 1u) / LANES;
const uint VALUE_SPAN = (VALUE_ITEMS + LANES - 1u) / LANES;

#if UNIT == 4
#define UNIT_VALUES vec4
#define DEFINE_LOAD(REF, LOAD_UNIT, LOAD, LOAD_FOUR) UNIT_VALUES LOAD_UNIT(REF p, uint i) { vec4 four; LOAD_FOUR(p, i, four); return four; }
#define DEFINE_STORE(REF, STORE_UNIT, STORE, STORE_FOUR) void STORE_UNIT(REF p, uint i, UNIT_VALUES unit) { STORE_FOUR(p, i, unit); }
#else
#define UNIT_VALUES float
#define DEFINE_LOAD(REF, LOAD_UNIT, LOAD, LOAD_FOUR) UNIT_VALUES LOAD_UNIT(REF p, uint i) { return LOAD(p, i); }
#define DEFINE_STORE(REF, STORE_UNIT, STORE, STORE_FOUR) void STORE_UNIT(REF p, uint i, UNIT_VALUES unit) { STORE(p, i, unit); }
#endif
DEFINE_LOAD(x_ref, load_unit_x, load_x, load4_x)
DEFINE_STORE(y_ref, store_unit_y, store_y, store4_y)
#ifdef TWICE
DEFINE_STORE(z_ref, store_unit_z, store_z, store4_z)
#endif

#ifdef CACHES
#define Y_TOKEN (HEADS * HEAD_DIM)
#define Y_HEAD HEAD_DIM
#endif

#if defined Y_BOUNDED || defined Z_BOUNDED
float bounded(float x) { return is_nan(x) ? x : clamp(x, -65504.0, 65504.0); }
#if UNIT == 4
vec4 bounded(vec4 x) { return vec4(bounded(x.x), bounded(x.y), bounded(x.z), bounded(x.w)); }
#endif
#endif
#ifdef Y_BOUNDED
#define TO_Y bounded
#else
#define TO_Y
#endif
#ifdef Z_BOUNDED
#define TO_Z bounded
#else
#define TO_Z
#endif

struct Item { UNIT_VALUES a, b; };

Item items[HEADS_PER_ROW * SPAN];
#ifdef CACHES
DEFINE_STORE(state_ref, store_unit_state, store_state, store4_state)

Item value_items[VALUE_HEADS_PER_ROW * VALUE_SPAN];
#endif
Item q_weights[SPAN], k_weights[SPAN];
UNIT_VALUES frequencies[SPAN], sines[SPAN], cosines[SPAN];

// Returns the offsets of an item's units in a head.
uvec2 units_of(uint item) {
#if !INTERLEAVED
    if (item < ROTATED_ITEMS) return uvec2(item * UNIT, item * UNIT + PAIRS);
#endif
    return uvec2(2u * item * UNIT, (2u * item + 1u) * UNIT);
}

Item load_item(x_ref x, uint at, uvec2 units) { return Item(load_unit_x(x, at + units.x), load_unit_x(x, at + units.y)); }

#ifdef CACHES
void store_item(state_ref state, uint at, uvec2 units, Item item) {
    store_unit_state(state, at + units.x, item.a);
    store_unit_state(state, at + units.y, item.b);
}
#endif

uint item_number(uint s) { return lane() + s * LANES; }
uint head_number(uint part, uint step) { return part + step * TOKEN_ROWS; }

void load_items(uint token, uint part) {
    UNROLL for (uint step = 0u; step < HEADS_PER_ROW; ++step) {
        uint head = min(head_number(part, step), ALL_HEADS - 1u);
#ifdef CACHES
        bool is_key = head >= HEADS;
        x_ref x = x_ref(is_key ? uvec2(pc.k) : uvec2(pc.q));
        uint at = is_key ? token * K_TOKEN + (head - HEADS) * K_HEAD : token * Q_TOKEN + head * Q_HEAD;
#else
        x_ref x = pc.q;
        uint at = token * Q_TOKEN + head * Q_HEAD;
#endif
        UNROLL for (uint s = 0u; s < SPAN; ++s) {
            items[step * SPAN + s] = load_item(x, at, units_of(min(item_number(s), ITEMS - 1u)));
        }
    }
#ifdef CACHES
    UNROLL for (uint step = 0u; step < VALUE_HEADS_PER_ROW; ++step) {
        uint at = token * V_TOKEN + min(head_number(part, step), KV_HEADS - 1u) * V_HEAD;
        UNROLL for (uint s = 0u; s < VALUE_SPAN; ++s) {
            uint item = min(item_number(s), VALUE_ITEMS - 1u);
            value_items[step * VALUE_SPAN + s] = load_item(pc.v, at, uvec2(2u * item, 2u * item + 1u) * UNIT);
        }
    }
#endif
}

#ifdef FREQUENCIES
DEFINE_LOAD(frequencies_ref, load_unit_frequencies, load_frequencies, load4_frequencies)
#endif
#ifdef Q_NORM_WEIGHT
DEFINE_LOAD(q_norm_weight_ref, load_unit_q_norm_weight, load_q_norm_weight, load4_q_norm_weight)
#endif
#ifdef K_NORM_WEIGHT
DEFINE_LOAD(k_norm_weight_ref, load_unit_k_norm_weight, load_k_norm_weight, load4_k_norm_weight)
#endif

void load_constants() {
    UNROLL for (uint s = 0u; s < SPAN; ++s) {
        uvec2 units = units_of(min(item_number(s), ITEMS - 1u));
#ifdef ROTATES
        frequencies[s] = load_unit_frequencies(pc.frequencies, min(item_number(s), ROTATED_ITEMS - 1u) * UNIT);
#endif
        q_weights[s] = k_weights[s] = Item(UNIT_VALUES(1.0), UNIT_VALUES(1.0));
#ifdef Q_NORM_WEIGHT
        q_weights[s] = Item(load_unit_q_norm_weight(pc.q_norm_weight, units.x), load_unit_q_norm_weight(pc.q_norm_weight, units.y));
#endif
#ifdef K_NORM_WEIGHT
        k_weights[s] = Item(load_unit_k_norm_weight(pc.k_norm_weight, units.x), load_unit_k_norm_weight(pc.k_norm_weight, units.y));
#endif
    }
}

void find_angles(uint token) {
#ifdef ROTATES
    float position = float(load_positions(pc.positions, token));
    UNROLL for (uint s = 0u; s < SPAN; ++s) {
        [[unroll]] for (uint i = 0u; i < UNIT; ++i) {
#if UNIT == 4
            precise float angle = position * frequencies[s][i];
            vec2 sc = sincos(angle) * ROTATION_SCALE;
            sines[s][i] = sc.x;
            cosines[s][i] = sc.y;
#else
            precise float angle = position * frequencies[s];
            vec2 sc = sincos(angle) * ROTATION_SCALE;
            sines[s] = sc.x;
            cosines[s] = sc.y;
#endif
        }
    }
#endif
}

Item rotated(Item item, uint s) {
#if INTERLEAVED && UNIT == 4
    vec4 x = vec4(item.a.xz, item.b.xz), y = vec4(item.a.yw, item.b.yw);
#else
    UNIT_VALUES x = item.a, y = item.b;
#endif
    UNIT_VALUES rotated_x = x * cosines[s] - y * sines[s];
    UNIT_VALUES rotated_y = y * cosines[s] + x * sines[s];
#if INTERLEAVED && UNIT == 4
    return Item(vec4(rotated_x.x, rotated_y.x, rotated_x.y, rotated_y.y), vec4(rotated_x.z, rotated_y.z, rotated_x.w, rotated_y.w));
#else
    return Item(rotated_x, rotated_y);
#endif
}

// Returns the norm's divisor of the row's head number `step`. Must be called by the whole workgroup.
float norm_of(uint step, bool is_key) {
    float norm = 1.0;
#if defined Q_NORM || defined K_NORM
    float squares = 0.0;
    UNROLL for (uint s = 0u; s < SPAN; ++s) {
        Item item = items[step * SPAN + s];
        if (item_number(s) < ITEMS) squares += dot(item.a, item.a) + dot(item.b, item.b);
    }
    float mean = sum_lanes(squares) / float(HEAD_DIM);
#ifdef Q_NORM
    if (!is_key) norm = sqrt(mean + Q_EPS);
#endif
#ifdef K_NORM
    if (is_key) norm = sqrt(mean + K_EPS);
#endif
#endif
    return norm;
}

Item prepared(uint step, uint s, bool is_key, float norm) {
    Item item = items[step * SPAN + s];
#if defined Q_NORM || defined K_NORM
    Item weight = q_weights[s];
    if (is_key) weight = k_weights[s];
    item = Item(item.a / norm * weight.a, item.b / norm * weight.b);
#endif
#ifdef ROTATES
    if (item_number(s) < ROTATED_ITEMS) item = rotated(item, s);
#endif
    return item;
}

void main() UNIFORM_FLOW {
    uint row = group_number() * ROWS + row_in_group();
    // Rows beyond the last take part in the reductions, which need the whole workgroup.
    bool inside = row < TOKENS * TOKEN_ROWS;
    row = min(row, TOKENS * TOKEN_ROWS - 1u);
    uint token = row / TOKEN_ROWS, part = row % TOKEN_ROWS;
    uint token_read = token;
#ifdef PADDED
    token_read = min(token, X_TOKENS - 1u);
#endif
    bool is_padding = token != token_read;
    load_items(token_read, part);
    load_constants();
#ifdef CACHES
    // A negative slot becomes a large unsigned one.
    uint slot = uint(load_slots(pc.slots, token));
    bool has_slot = slot < SLOTS;
#endif
    find_angles(token_read);
    UNROLL for (uint step = 0u; step < HEADS_PER_ROW; ++step) {
        uint head = head_number(part, step);
        bool is_key = head >= HEADS;
        float norm = norm_of(step, is_key);
        UNROLL for (uint s = 0u; s < SPAN; ++s) {
            bool is_there = inside && item_number(s) < ITEMS && head < ALL_HEADS;
            Item item = prepared(step, s, is_key, norm);
            if (is_padding) item = Item(UNIT_VALUES(0.0), UNIT_VALUES(0.0));
            uvec2 units = units_of(item_number(s));
            if (is_there && !is_key) {
                uint at = token * Y_TOKEN + head * Y_HEAD;
                store_unit_y(pc.y, at + units.x, TO_Y(item.a));
                store_unit_y(pc.y, at + units.y, TO_Y(item.b));
#ifdef TWICE
                if (is_padding) continue;
                at = token * Z_TOKEN + head * Z_HEAD;
                store_unit_z(pc.z, at + units.x, TO_Z(item.a));
                store_unit_z(pc.z, at + units.y, TO_Z(item.b));
#endif
            }
#ifdef CACHES
            if (is_there && has_slot && is_key) {
                store_item(pc.keys, (slot * KV_HEADS + head - HEADS) * HEAD_DIM, units, item);
            }
#endif
        }
    }
#ifdef CACHES
    UNROLL for (uint step = 0u; step < VALUE_HEADS_PER_ROW; ++step) {
        uint head = head_number(part, step);
        if (!inside || !has_slot || head >= KV_HEADS) break;
        UNROLL for (uint s = 0u; s < VALUE_SPAN; ++s) {
            uint item = item_number(s);
            if (item >= VALUE_ITEMS) break;
            uvec2 units = uvec2(2u * item, 2u * item + 1u) * UNIT;
            store_item(pc.values, (slot * KV_HEADS + head) * VALUE_DIM, units, value_items[step * VALUE_SPAN + s]);
        }
    }
#endif
}
