// Rounds the token's own key and value to the cache's block format, unit by unit. One workgroup per KV head stores them
// in the cache.
const uint OWN_UNITS = (UNITS + VALUE_UNITS + THREADS - 1u) / THREADS;

uint own_scale(uint at) {
    float largest = 0.0;
    for (uint i = 0u; i < 32u; ++i) cache_fold(largest, vectors[at + i]);
    return cache_scale_of(largest);
}

// Returns unit `unit` of the key or value of `dim` values at `at`.
cache_unit own_unit(uint at, uint dim, uint unit) {
    cache_unit own;
    uint pair = unit / 8u * 64u;
    own.shift = unit / 4u % 2u * 16u;
    own.scales = own_scale(at + pair);
    if (pair + 32u < dim) own.scales |= own_scale(at + pair + 32u) << 16;
    uint scale = own.scales >> own.shift & 0xffffu;
    uint words[CACHE_BITS / 4u];
    [[unroll]] for (uint w = 0u; w < CACHE_BITS / 4u; ++w) {
        words[w] = 0u;
        [[unroll]] for (uint i = 0u; i < 32u / CACHE_BITS; ++i) {
            words[w] |= cache_quant_of(vectors[at + unit * 8u + w * (32u / CACHE_BITS) + i], scale, i * CACHE_BITS);
        }
    }
#if CACHE_WORDS == 2
    own.quants = uvec2(words[0], words[1]);
#else
    own.quants = words[0];
#endif
    return own;
}

void store_unit(uvec2 state, uint dim, uint row, uint unit, cache_unit own) {
    cache_units(state).at[row * cache_row_units(dim) + unit] = own.quants;
    if (unit % 8u == 0u) {
        cache_words(state).at[row * cache_row_words(dim) + cache_quant_words(dim) + unit / 8u] = own.scales;
    }
}

void store_own() {
    bool stores = head % RATIO == 0u;
    uint row = own_slot * KV_HEADS + kv_head;
    cache_unit own[OWN_UNITS];
    UNROLL for (uint step = 0u; step < OWN_UNITS; ++step) {
        uint number = gl_LocalInvocationIndex + step * THREADS;
        bool is_key = number < UNITS;
        if (number >= UNITS + VALUE_UNITS) break;
        uint unit = is_key ? number : number - UNITS;
        uint dim = is_key ? HEAD_DIM : VALUE_DIM;
        own[step] = own_unit((is_key ? HEADS : HEADS + 1u) * HEAD_DIM, dim, unit);
        if (stores) store_unit(is_key ? uvec2(pc.keys) : uvec2(pc.values), dim, row, unit, own[step]);
    }
    // All scales are found before values are rounded.
    barrier();
    UNROLL for (uint step = 0u; step < OWN_UNITS; ++step) {
        uint number = gl_LocalInvocationIndex + step * THREADS;
        if (number >= UNITS + VALUE_UNITS) break;
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
            vec2 pair = cache_pair(own[step], i);
            uint at = HEADS * HEAD_DIM + number * 8u + 2u * i;
            vectors[at] = pair.x;
            vectors[at + 1u] = pair.y;
        }
    }
    barrier();
}
