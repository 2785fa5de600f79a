// y[row] = places of the row's k largest elements, largest first, of a row as long as a workgroup at most: how many
// elements stand before another is where it stands.
layout(local_size_x_id = 0) in;
// Quads that hold a row.
layout(constant_id = 3) const uint QUADS = 64;
layout(constant_id = 4) const uint SHARES = 4;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
#ifdef VALUES
    // Without gaps.
    v_ref values;
#endif
    uint rows;
    uint columns;
    uint x_stride;
    uint k;
    uint y_stride;
} push;

shared uvec4 keys[QUADS];
// How many elements stand before each.
shared uint places[4u * QUADS];

void main() UNIFORM_FLOW {
    uint row = group_number();
    if (row >= push.rows) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, row, at);
    // Neighbouring invocations have neighbouring elements; SHARES of them compare the same one with others.
    uint own = gl_LocalInvocationIndex % (4u * QUADS);
    uint share = gl_LocalInvocationIndex / (4u * QUADS);
    uint key = 0u;
    if (own < push.columns) key = order_key(load_x(push.x, at[0] + own * push.x_stride));
    if (share == 0u) {
        keys[own / 4u][own % 4u] = key;
        places[own] = 0u;
    }
    barrier();
    if (own < push.columns && share < SHARES) {
        uvec4 before = uvec4(0u);
        // Short, for it is fetched to be run once.
        [[dont_unroll]] for (uint quad = share; quad < QUADS; quad += SHARES) {
            uvec4 others = keys[quad];
            uvec4 elements = 4u * quad + uvec4(0u, 1u, 2u, 3u);
            // Of equal elements the first comes first; what is beyond the row has the least key and the last place.
            before += uvec4(greaterThan(others, uvec4(key)));
            before += uvec4(equal(others, uvec4(key))) * uvec4(lessThan(elements, uvec4(own)));
        }
        atomicAdd(places[own], before.x + before.y + before.z + before.w);
    }
    barrier();
    if (share == 0u && own < push.columns && places[own] < push.k) {
        store_y(push.y, at[1] + places[own] * push.y_stride, own);
#ifdef VALUES
        store_v(push.values, row * push.k + places[own], load_x(push.x, at[0] + own * push.x_stride));
#endif
    }
}
