// A tile of 4*HIGH rows by 4*BROAD columns of a product, by HIGH * BROAD invocations of 4 x 4
// elements each. Rows and columns of an invocation lie HIGH and BROAD apart, so that neighbours
// read neighbouring columns from shared memory and store neighbouring elements.
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HIGH = 8;
layout(constant_id = 4) const uint BROAD = 8;
layout(constant_id = 5) const uint DEPTH = 32;

const uint TILE_ROWS = 4u * HIGH;
const uint TILE_COLUMNS = 4u * BROAD;
const uint THREADS = HIGH * BROAD;
// One float of padding per line, so that lines start in different banks.
const uint LEFT_LINE = TILE_ROWS + 1u;
const uint RIGHT_LINE = TILE_COLUMNS + 1u;

shared float left_tile[DEPTH * LEFT_LINE];
shared float right_tile[DEPTH * RIGHT_LINE];

vec4 tile_sums[4]; // one vec4 of columns per row

void clear_tile() {
    [[unroll]] for (uint i = 0u; i < 4u; ++i) tile_sums[i] = vec4(0.0);
}

void multiply_tiles() {
    uint row = gl_LocalInvocationIndex / BROAD;
    uint column = gl_LocalInvocationIndex % BROAD;
    // Unrolled by four: compilers differ in how far they go, and software ones take long if told to.
    for (uint first = 0u; first < DEPTH; first += 4u) {
#ifdef COUNTED
        // Mesa's software drivers unroll only where the last number is known; an H200 is 5 % slower so.
        [[unroll]] for (uint turn = 0u; turn < 4u; ++turn) {
            uint k = first + turn;
#else
        [[unroll]] for (uint k = first; k < first + 4u; ++k) {
#endif
            uint l = k * LEFT_LINE + row;
            uint r = k * RIGHT_LINE + column;
            vec4 right = vec4(right_tile[r], right_tile[r + BROAD], right_tile[r + 2u * BROAD], right_tile[r + 3u * BROAD]);
            [[unroll]] for (uint i = 0u; i < 4u; ++i) tile_sums[i] += left_tile[l + i * HIGH] * right;
        }
    }
}
