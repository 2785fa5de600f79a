void multiply_tiles() {
    uint row = gl_LocalInvocationIndex / BROAD;
    uint column = gl_LocalInvocationIndex % BROAD;
    // Unrolled by four: compilers differ in how far they go, and software ones take long if told to.
    for (uint first = 0u; first < DEPTH; first += 4u) {
        [[unroll]] for (uint k = first; k < first + 4u; ++k) {
            uint l = k * LEFT_LINE + row;
            uint r = k * RIGHT_LINE + column;
            vec4 right = vec4(right_tile[r], right_tile[r + BROAD], right_tile[r + 2u * BROAD], right_tile[r + 3u * BROAD]);
            [[unroll]] for (uint i = 0u; i < 4u; ++i) tile_sums[i] += left_tile[l + i * HIGH] * right;
        }
    }
}
