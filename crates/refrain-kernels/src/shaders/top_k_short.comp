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
    uvec4 before = uvec4(0u);
    UNROLL for (uint quad = 0u; quad < QUADS; ++quad) {
        uvec4 others = keys[quad];
        // Of equal elements the first comes first; what is beyond the row has the least key and the last place.
        bool earlier = quad < own / 4u;
        before += uvec4(greaterThan(others, uvec4(key)));
        if (earlier || quad == own / 4u) {
            bvec4 stands = equal(others, uvec4(key));
            [[unroll]] for (uint i = 0u; i < 4u; ++i) before[i] += uint(stands[i] && (earlier || i < own % 4u));
        }
    }
    uint place = before.x + before.y + before.z + before.w;
    if (place < push.k) store_y(push.y, at[1] + place * push.y_stride, own);
}
