// How a subgroup's lanes hold fragments. VALUES of a row's values in a fragment are a lane's.
const uint ROWS_EACH = SUBGROUP / LANES_PER_ROW; // rows of a fragment that lie in different lanes
const uint SLOTS = FRAGMENT / ROWS_EACH;         // rows that a lane has a part of
const uint ELEMENTS = 8u;                        // of a fragment in a lane: SLOTS times VALUES

#define A_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, FRAGMENT, FRAGMENT, gl_MatrixUseA>
#define B_FRAGMENT coopmat<float16_t, gl_ScopeSubgroup, FRAGMENT, FRAGMENT, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, FRAGMENT, FRAGMENT, gl_MatrixUseAccumulator>

// The row of a lane's part, and its place among those that share the row.
uint lane_row() { return gl_SubgroupInvocationID / LANES_PER_ROW; }
uint lane_part() { return gl_SubgroupInvocationID % LANES_PER_ROW; }
