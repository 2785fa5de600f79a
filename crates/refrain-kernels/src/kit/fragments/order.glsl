// How a subgroup's lanes hold fragments. VALUES of a row's values in a fragment are a lane's; fragments of tokens, whose
// rows lie across, have TOKEN_COLUMNS of those, and sums as many columns.
const uint SUM_VALUES = uint(VALUES) * TOKEN_COLUMNS / FRAGMENT;
const uint ROWS_EACH = SUBGROUP / LANES_PER_ROW; // rows of a fragment that lie in different lanes
const uint SLOTS = FRAGMENT / ROWS_EACH;         // rows that a lane has a part of
const uint ELEMENTS = SLOTS * SUM_VALUES;        // of a fragment of sums in a lane
// In memory lanes take WORD_HALVES halves of a fragment of tokens at once: of so many rows, so many times.
const uint WORD_SLOTS = WORD_HALVES / uint(VALUES);
const uint LANE_WORDS = TOKEN_COLUMNS / ROWS_EACH / WORD_SLOTS;
const uint WORD_ROWS = TOKEN_COLUMNS / WORD_SLOTS; // rows whose first such word is their own
const uint FRAGMENT_WORDS = SUBGROUP * LANE_WORDS;

// What an instruction multiplies: a fragment, or parts of one.
#define A_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, PART_ROWS, PART_DEPTH, gl_MatrixUseA>
#define B_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, PART_DEPTH, PART_COLUMNS, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, PART_ROWS, PART_COLUMNS, gl_MatrixUseAccumulator>
const uint ROW_PARTS = FRAGMENT / PART_ROWS;
const uint COLUMN_PARTS = TOKEN_COLUMNS / PART_COLUMNS;
const uint DEPTH_PARTS = FRAGMENT / PART_DEPTH;
const uint B_PARTS = DEPTH_PARTS * COLUMN_PARTS;
const uint SUM_PARTS = ROW_PARTS * COLUMN_PARTS;

// The row of a lane's part, and its place among those that share the row.
uint lane_row() { return gl_SubgroupInvocationID / LANES_PER_ROW; }
uint lane_part() { return gl_SubgroupInvocationID % LANES_PER_ROW; }
