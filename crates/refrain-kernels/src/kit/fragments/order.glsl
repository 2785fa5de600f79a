// Layout of fragments in the lanes of a subgroup. A lane holds VALUES values of a row of a fragment. Fragments of
// tokens are stored transposed and have TOKEN_COLUMNS columns, as have accumulators.
const uint SUM_VALUES = uint(VALUES) * TOKEN_COLUMNS / FRAGMENT;
const uint ROWS_EACH = SUBGROUP / LANES_PER_ROW; // rows of a fragment in different lanes
const uint SLOTS = FRAGMENT / ROWS_EACH;         // rows of which a lane holds a part
const uint ELEMENTS = SLOTS * SUM_VALUES;        // elements of an accumulator per lane
// In memory, a lane's word is WORD_HALVES f16 of a fragment of tokens, from WORD_SLOTS rows; a lane has LANE_WORDS
// words.
const uint WORD_SLOTS = WORD_HALVES / uint(VALUES);
const uint LANE_WORDS = TOKEN_COLUMNS / ROWS_EACH / WORD_SLOTS;
const uint WORD_ROWS = TOKEN_COLUMNS / WORD_SLOTS; // rows whose first word starts in them
const uint FRAGMENT_WORDS = SUBGROUP * LANE_WORDS;

// Matrix types of an instruction: a whole fragment or a part of one.
#define A_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, PART_ROWS, PART_DEPTH, gl_MatrixUseA>
#define B_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, PART_DEPTH, PART_COLUMNS, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, PART_ROWS, PART_COLUMNS, gl_MatrixUseAccumulator>
const uint ROW_PARTS = FRAGMENT / PART_ROWS;
const uint COLUMN_PARTS = TOKEN_COLUMNS / PART_COLUMNS;
const uint DEPTH_PARTS = FRAGMENT / PART_DEPTH;
const uint B_PARTS = DEPTH_PARTS * COLUMN_PARTS;
const uint SUM_PARTS = ROW_PARTS * COLUMN_PARTS;

// A lane's row, and its position among the lanes that share the row.
uint lane_row() { return gl_SubgroupInvocationID / LANES_PER_ROW; }
uint lane_part() { return gl_SubgroupInvocationID % LANES_PER_ROW; }
