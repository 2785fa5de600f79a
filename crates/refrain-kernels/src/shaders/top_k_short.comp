// y[row] = places of the row's k largest elements, largest first, of a row as long as a workgroup at most: how many
// elements stand before another is where it stands.
layout(local_size_x_id = 0) in;
// Quads that hold a row.
layout(constant_id = 3) const uint QUADS = 64;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
    uint rows;
    uint columns;
    uint x_stride;
    uint k;
    uint y_stride;
} push;

shared uvec4 keys[QUADS];

void main() {
    uint row = group_number();
    if (row >= push.rows) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, row, at);
    uint own = gl_LocalInvocationIndex;
    uint key = 0u;
    if (own < push.columns) key = order_key(load_x(push.x, at[0] + own * push.x_stride));
    if (own < 4u * QUADS) keys[own / 4u][own % 4u] = key;
    barrier();
    if (own >= push.columns) return;
    uint before = 0u;
    for (uint quad = 0u; quad < QUADS; ++quad) {
        uvec4 others = keys[quad];
        uvec4 places = 4u * quad + uvec4(0u, 1u, 2u, 3u);
        // Of equal elements the first comes first; what is beyond the row has the least key and the last place.
        bvec4 stands = greaterThan(others, uvec4(key));
        bvec4 equal = equal(others, uvec4(key));
        bvec4 earlier = lessThan(places, uvec4(own));
        [[unroll]] for (uint i = 0u; i < 4u; ++i) before += uint(stands[i] || (equal[i] && earlier[i]));
    }
    if (before < push.k) store_y(push.y, at[1] + before * push.y_stride, own);
}
