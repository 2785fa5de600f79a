void multiply_tiles() {
    uint row = gl_LocalInvocationIndex / BROAD;
    uint column = gl_LocalInvocationIndex % BROAD;
    // Mesa's software drivers unroll the inner loop only where its last number is known; an H200 is 5 % slower so.
    for (uint first = 0u; first < DEPTH; first += 4u) {
        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
            uint l = (first + i) * LEFT_LINE + row;
            uint r = (first + i) * RIGHT_LINE + column;
            vec4 right = vec4(right_tile[r], right_tile[r + BROAD], right_tile[r + 2u * BROAD], right_tile[r + 3u * BROAD]);
            [[unroll]] for (uint j = 0u; j < 4u; ++j) tile_sums[j] += left_tile[l + j * HIGH] * right;
        }
    }
}
