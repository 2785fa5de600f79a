// A tile of a product, in shared memory: TILE_ROWS rows by TILE_COLUMNS columns, DEPTH products of each at a time. An
// invocation computes OWN_ROWS rows by 4 * COLUMN_FOURS columns, by fours that lie HIGH and BROAD fours apart; SLICES
// invocations take the products of the same elements in turn. The more elements, the fewer reads of shared memory for a
// product; by fours, since it is read fastest by vec4.
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HIGH = 8;
layout(constant_id = 4) const uint BROAD = 8;
layout(constant_id = 5) const uint DEPTH = 32;
layout(constant_id = 6) const uint ROW_FOURS = 1;
layout(constant_id = 7) const uint COLUMN_FOURS = 1;
layout(constant_id = 9) const uint SLICES = 1;

const uint OWN_ROWS = 4u * ROW_FOURS;
const uint TILE_ROWS = HIGH * OWN_ROWS;
const uint TILE_COLUMNS = 4u * BROAD * COLUMN_FOURS;
const uint PLACES = HIGH * BROAD;
const uint THREADS = PLACES * SLICES;
// One vec4 of padding per line, so that lines start in different banks.
const uint LEFT_LINE = TILE_ROWS / 4u + 1u;
const uint RIGHT_LINE = TILE_COLUMNS / 4u + 1u;
const uint RIGHT = DEPTH * LEFT_LINE;

// For each k the rows, then for each the columns.
shared vec4 tiles[DEPTH * (LEFT_LINE + RIGHT_LINE)];

vec4 tile_sums[OWN_ROWS * COLUMN_FOURS]; // row by row

// Where a row, and a column, of a k lies, at its place in a four.
uint left_at(uint k, uint row) { return k * LEFT_LINE + row / 4u; }
uint right_at(uint k, uint column) { return RIGHT + k * RIGHT_LINE + column / 4u; }

uint slice() { return gl_LocalInvocationIndex / PLACES; }

// Sixteen neighbours take two fours of rows by eight of columns: what they read at once lies together.
uint own_row() { return gl_LocalInvocationIndex % PLACES / 16u % (HIGH / 2u) * 2u + gl_LocalInvocationIndex % 2u; }
uint own_column() {
    return gl_LocalInvocationIndex % PLACES / (8u * HIGH) * 8u + gl_LocalInvocationIndex / 2u % 8u;
}

// Where row i of this invocation's lies in the tile, and the first of its four columns with that number.
uint tile_row(uint i) { return 4u * (own_row() + i / 4u * HIGH) + i % 4u; }
uint tile_column(uint four) { return 4u * (own_column() + four * BROAD); }

void clear_tile() {
    [[unroll]] for (uint i = 0u; i < OWN_ROWS * COLUMN_FOURS; ++i) tile_sums[i] = vec4(0.0);
}

void multiply_tiles() {
    uint l = slice() * LEFT_LINE + own_row();
    uint r = RIGHT + slice() * RIGHT_LINE + own_column();
    // Unrolled by four at least: compilers differ in how far they go, and software ones take long if told to.
    UNROLL for (uint first = 0u; first < DEPTH; first += 4u * SLICES) {
        [[unroll]] for (uint turn = 0u; turn < 4u; ++turn) {
            uint k = first + turn * SLICES;
            vec4 left[ROW_FOURS];
            vec4 right[COLUMN_FOURS];
            [[unroll]] for (uint i = 0u; i < ROW_FOURS; ++i) left[i] = tiles[l + k * LEFT_LINE + i * HIGH];
            [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) right[j] = tiles[r + k * RIGHT_LINE + j * BROAD];
            [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
                [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) {
                    tile_sums[i * COLUMN_FOURS + j] += left[i / 4u][i % 4u] * right[j];
                }
            }
        }
    }
}

// Adds the sums of all slices: afterwards each has its own of the rows. To be called by the whole workgroup, once nobody
// reads the tiles.
void join_slices() {
    if (SLICES == 1u) return;
    [[unroll]] for (uint i = 0u; i < OWN_ROWS; ++i) {
        [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) {
            tiles[j * THREADS + gl_LocalInvocationIndex] = tile_sums[i * COLUMN_FOURS + j];
        }
        barrier();
        if (i % SLICES == slice()) {
            [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) {
                vec4 total = vec4(0.0);
                [[unroll]] for (uint s = 0u; s < SLICES; ++s) {
                    total += tiles[j * THREADS + s * PLACES + gl_LocalInvocationIndex % PLACES];
                }
                tile_sums[i * COLUMN_FOURS + j] = total;
            }
        }
        barrier();
    }
}

// The sums of row i, whose number no compiler knows: what is indexed by such a number is no register.
void row_sums(uint i, out vec4 sums[COLUMN_FOURS]) {
    [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) {
        sums[j] = tile_sums[j];
        [[unroll]] for (uint row = 1u; row < OWN_ROWS; ++row) {
            if (row == i) sums[j] = tile_sums[row * COLUMN_FOURS + j];
        }
    }
}
