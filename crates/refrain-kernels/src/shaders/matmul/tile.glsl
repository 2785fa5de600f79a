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

