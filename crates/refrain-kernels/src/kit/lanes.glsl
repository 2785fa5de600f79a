// LANES consecutive invocations share a row; a workgroup has ROWS rows, that is, ROWS * LANES invocations.
// - If subgroups have LANES invocations, a subgroup is a row.
// - With ROWS_SHARE_SUBGROUPS, several rows share a subgroup.
// - If one row takes the whole workgroup, the results of its subgroups are combined in shared memory.
// - Otherwise all lanes are combined in shared memory.
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint LANES = 8;
layout(constant_id = 4) const uint ROWS = 1;

shared LANE_VALUE lane_values[ROWS * LANES];

#ifdef ROWS_SHARE_SUBGROUPS
uint row_in_group() { return gl_SubgroupID * (FULL_SUBGROUPS / LANES) + gl_SubgroupInvocationID / LANES; }
uint lane() { return gl_SubgroupInvocationID % LANES; }

#define COMBINE_BY_SUBGROUPS(JOIN, SUBGROUP_JOIN) \
    [[unroll]] for (uint apart = LANES / 2u; apart > 0u; apart /= 2u) { \
        value = JOIN(value, subgroupShuffleXor(value, apart)); \
    } \
    if (true) return value;
#elif defined(SUBGROUP_ARITHMETIC)
#ifdef FULL_SUBGROUPS
// Constant at pipeline creation, so that only one of the variants below is compiled.
bool rows_are_subgroups() { return LANES == FULL_SUBGROUPS; }
#else
bool rows_are_subgroups() { return gl_SubgroupSize == LANES && gl_NumSubgroups == ROWS; }
#endif
uint row_in_group() { return rows_are_subgroups() ? gl_SubgroupID : gl_LocalInvocationIndex / LANES; }
uint lane() { return rows_are_subgroups() ? gl_SubgroupInvocationID : gl_LocalInvocationIndex % LANES; }

#define COMBINE_BY_SUBGROUPS(JOIN, SUBGROUP_JOIN) \
    if (rows_are_subgroups()) return SUBGROUP_JOIN(value); \
    if (ROWS == 1u) { \
        LANE_VALUE part = SUBGROUP_JOIN(value); \
        if (subgroupElect()) lane_values[gl_SubgroupID] = part; \
        barrier(); \
        LANE_VALUE total = lane_values[0]; \
        for (uint i = 1u; i < gl_NumSubgroups; ++i) total = JOIN(total, lane_values[i]); \
        barrier(); \
        return total; \
    }
#else
uint row_in_group() { return gl_LocalInvocationIndex / LANES; }
uint lane() { return gl_LocalInvocationIndex % LANES; }

#define COMBINE_BY_SUBGROUPS(JOIN, SUBGROUP_JOIN)
#endif

// Defines NAME(value), which reduces the row's values with the associative JOIN(a, b) and returns the result to all
// invocations of the row. The whole workgroup must call it.
#define DEFINE_COMBINE(NAME, JOIN, SUBGROUP_JOIN) \
LANE_VALUE NAME(LANE_VALUE value) { \
    COMBINE_BY_SUBGROUPS(JOIN, SUBGROUP_JOIN) \
    uint at = row_in_group() * LANES + lane(); \
    lane_values[at] = value; \
    barrier(); \
    for (uint apart = LANES / 2u; apart > 0u; apart /= 2u) { \
        if (lane() < apart) lane_values[at] = JOIN(lane_values[at], lane_values[at + apart]); \
        barrier(); \
    } \
    LANE_VALUE total = lane_values[row_in_group() * LANES]; \
    barrier(); \
    return total; \
}

#define JOIN_SUM(a, b) ((a) + (b))
DEFINE_COMBINE(sum_lanes, JOIN_SUM, subgroupAdd)
