// A tile of TILE_ROWS × TILE_COLUMNS results, with operand tiles of depth DEPTH in shared memory. Register blocking: an
// invocation computes OWN_ROWS × 4 * COLUMN_FOURS results, as vec4s that are HIGH and BROAD vec4s apart. SLICES
// invocations split the products of the same results (slice-K). Larger register tiles read less shared memory per
// product; vec4 reads are the fastest.
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
// One vec4 of padding per row, so that rows start in different banks.
const uint LEFT_LINE = TILE_ROWS / 4u + 1u;
const uint RIGHT_LINE = TILE_COLUMNS / 4u + 1u;
const uint RIGHT = DEPTH * LEFT_LINE;

// For each k the left operand's rows; after those, for each k the right operand's columns.
shared vec4 tiles[DEPTH * (LEFT_LINE + RIGHT_LINE)];

vec4 tile_sums[OWN_ROWS * COLUMN_FOURS]; // row by row

// Position of the vec4 with a row, or column, for a k.
uint left_at(uint k, uint row) { return k * LEFT_LINE + row / 4u; }
uint right_at(uint k, uint column) { return RIGHT + k * RIGHT_LINE + column / 4u; }

uint slice() { return gl_LocalInvocationIndex / PLACES; }

// Sixteen consecutive invocations cover 2 × 8 vec4s of rows and columns, so that their reads are contiguous.
uint own_row() { return gl_LocalInvocationIndex % PLACES / 16u % (HIGH / 2u) * 2u + gl_LocalInvocationIndex % 2u; }
uint own_column() {
    return gl_LocalInvocationIndex % PLACES / (8u * HIGH) * 8u + gl_LocalInvocationIndex / 2u % 8u;
}

// Position in the tile of row i of this invocation, and of its vec4 `four` of columns.
uint tile_row(uint i) { return 4u * (own_row() + i / 4u * HIGH) + i % 4u; }
uint tile_column(uint four) { return 4u * (own_column() + four * BROAD); }

void clear_tile() {
    [[unroll]] for (uint i = 0u; i < OWN_ROWS * COLUMN_FOURS; ++i) tile_sums[i] = vec4(0.0);
}

void multiply_tiles() {
    uint l = slice() * LEFT_LINE + own_row();
    uint r = RIGHT + slice() * RIGHT_LINE + own_column();
    // Unrolled by at least four: compilers differ in how far they unroll, and software drivers take long to unroll
    // fully.
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

// Slice-K reduction: adds the sums of all slices; afterwards each slice has some of the rows. The whole workgroup must
// call it, once the tiles are no longer read.
void reduce_slices() {
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

// Returns the sums of row i. i is not a constant, and arrays with a variable index would not stay in registers.
void row_sums(uint i, out vec4 sums[COLUMN_FOURS]) {
    [[unroll]] for (uint j = 0u; j < COLUMN_FOURS; ++j) {
        sums[j] = tile_sums[j];
        [[unroll]] for (uint row = 1u; row < OWN_ROWS; ++row) {
            if (row == i) sums[j] = tile_sums[row * COLUMN_FOURS + j];
        }
    }
}
