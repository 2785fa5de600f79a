// y[row] = indices of the row's k largest elements, largest first. One workgroup finds CHUNK of them. Where workgroups
// split a row, each stores the indices of its split's k largest (NO_INDEX if it has fewer), and a second call selects
// among these candidates.
layout(local_size_x_id = 0) in;
// Sorted results per workgroup: a power of two.
layout(constant_id = 3) const uint CHUNK = 1024;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    words_ref record;
#ifdef VALUES
    // Contiguous.
    v_ref values;
#endif
#ifdef JOINED
    z_ref indices;
#endif
    uint rows;
    uint columns;
    uint x_stride;
    uint k;
    uint y_stride;
#ifdef SHARED_ROWS
    // Workgroups that split a row, and columns of each.
    uint splits;
    uint split_columns;
#endif
#ifdef JOINED
    // Candidates per row.
    uint candidates;
#endif
} push;

// Below every rank, since inverted indices are not zero.
const uvec2 NO_RANK = uvec2(0u);
const uint NO_INDEX = 0xffffffffu;

// The elements that this workgroup selects among.
uint first_element, element_count;

shared uint histogram[256];
shared uint sixteenths[16];
shared uint collected;
shared uvec2 chosen[CHUNK];

// Columns of an invocation whose loads are issued together, so that it stalls once for all of them.
const uint LOADS_EACH = 4;

#ifdef JOINED
uint index_of(uint element) { return load_z(push.indices, first_element + element); }
#else
uint index_of(uint element) { return first_element + element; }
#endif

// Loads the ranks of elements element, element + width …: the value's key, then the inverted index, so that the first
// index ranks highest. Elements beyond the last rank below all others.
void load_ranks(uint start, uint element, out uvec2 ranks[LOADS_EACH]) {
    uint indices[LOADS_EACH];
    [[unroll]] for (uint k = 0u; k < LOADS_EACH; k++) {
        indices[k] = index_of(min(element + k * gl_WorkGroupSize.x, element_count - 1u));
    }
    [[unroll]] for (uint k = 0u; k < LOADS_EACH; k++) {
        uint index = min(indices[k], push.columns - 1u);
        ranks[k] = uvec2(order_key(load_x(push.x, start + index * push.x_stride)), ~index);
    }
    [[unroll]] for (uint k = 0u; k < LOADS_EACH; k++) {
        if (element + k * gl_WorkGroupSize.x >= element_count || indices[k] == NO_INDEX) ranks[k] = NO_RANK;
    }
}

bool at_least(uvec2 a, uvec2 b) { return a.x > b.x || (a.x == b.x && a.y >= b.y); }

// Counts the digit at `shift` of all ranks that agree with `prefix` under `mask`.
void count_digits(uint start, uvec2 prefix, uvec2 mask, uint shift, bool of_index) {
    uint me = gl_LocalInvocationIndex, width = gl_WorkGroupSize.x;
    for (uint i = me; i < 256u; i += width) histogram[i] = 0u;
    barrier();
    for (uint element = me; element < element_count; element += LOADS_EACH * width) {
        uvec2 ranks[LOADS_EACH];
        load_ranks(start, element, ranks);
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; k++) {
            if (ranks[k] == NO_RANK || (ranks[k] & mask) != prefix) continue;
            atomicAdd(histogram[((of_index ? ranks[k].y : ranks[k].x) >> shift) & 255u], 1u);
        }
    }
    barrier();
    for (uint i = me; i < 16u; i += width) {
        uint sum = 0u;
        for (uint j = 0u; j < 16u; j++) sum += histogram[16u * i + j];
        sixteenths[i] = sum;
    }
    barrier();
}

// Returns a rank that exactly `wanted` elements reach; 1 ≤ wanted ≤ number of elements.
uvec2 threshold(uint start, uint wanted) {
    uvec2 prefix = uvec2(0u), mask = uvec2(0u);
    uint index_bits = uint(findMSB(push.columns) + 1);
    for (uint pass = 0u; pass < 8u; pass++) {
        uint shift = 24u - 8u * (pass & 3u);
        bool of_index = pass >= 4u;
        uint digit = 255u;
        // The high bits of inverted indices are all set.
        bool known = of_index && shift >= index_bits;
        bool whole = false;
        if (!known) {
            count_digits(start, prefix, mask, shift, of_index);
            uint sixteenth = 15u;
            for (; sixteenth > 0u && wanted > sixteenths[sixteenth]; sixteenth--) wanted -= sixteenths[sixteenth];
            digit = 16u * sixteenth + 15u;
            for (; digit > 0u && wanted > histogram[digit]; digit--) wanted -= histogram[digit];
            whole = wanted == histogram[digit];
            barrier();
        }
        uvec2 part = of_index ? uvec2(0u, 1u) : uvec2(1u, 0u);
        prefix |= part * (digit << shift);
        mask |= part * (255u << shift);
        if (whole) break;
    }
    return prefix;
}

void sort_chosen() {
    for (uint size = 2u; size <= CHUNK; size *= 2u) {
        for (uint distance = size / 2u; distance > 0u; distance /= 2u) {
            for (uint i = gl_LocalInvocationIndex; i < CHUNK / 2u; i += gl_WorkGroupSize.x) {
                uint low = 2u * i - (i & (distance - 1u));
                uint high = low + distance;
                bool descending = (low & size) == 0u;
                if (at_least(chosen[low], chosen[high]) != descending) {
                    uvec2 kept = chosen[low];
                    chosen[low] = chosen[high];
                    chosen[high] = kept;
                }
            }
            barrier();
        }
    }
}

void main() UNIFORM_FLOW {
#ifdef SHARED_ROWS
    uint row = group_number() / push.splits, part = group_number() % push.splits;
    first_element = part * push.split_columns;
    element_count = min(push.split_columns, push.columns - first_element);
    uint from = 0u, to = min(push.k, element_count);
#else
    uint chunks = (push.k + CHUNK - 1u) / CHUNK;
    uint row = group_number() / chunks;
    uint from = (group_number() % chunks) * CHUNK, to = min(from + CHUNK, push.k);
#ifdef JOINED
    first_element = row * push.candidates;
    element_count = push.candidates;
#else
    first_element = 0u;
    element_count = push.columns;
#endif
#endif
    if (row >= push.rows) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, row, at);

    uvec2 lower = threshold(at[0], to);
    uvec2 upper = uvec2(0xffffffffu);
    if (from > 0u) upper = threshold(at[0], from);
    uint me = gl_LocalInvocationIndex, width = gl_WorkGroupSize.x;
    if (me == 0u) collected = 0u;
    for (uint i = me; i < CHUNK; i += width) chosen[i] = NO_RANK;
    barrier();
    for (uint element = me; element < element_count; element += LOADS_EACH * width) {
        uvec2 ranks[LOADS_EACH];
        load_ranks(at[0], element, ranks);
        [[unroll]] for (uint k = 0u; k < LOADS_EACH; k++) {
            bool above = from > 0u && at_least(ranks[k], upper);
            bool wanted = ranks[k] != NO_RANK && at_least(ranks[k], lower) && !above;
            if (wanted) chosen[atomicAdd(collected, 1u) & (CHUNK - 1u)] = ranks[k];
        }
    }
    barrier();
    sort_chosen();
#ifdef SHARED_ROWS
    uint y_at = (row * push.splits + part) * push.k;
    for (uint i = me; i < push.k; i += width) store_y(push.y, y_at + i, i < to ? ~chosen[i].y : NO_INDEX);
#else
    for (uint i = me; i < to - from; i += width) {
        uint index = ~chosen[i].y;
        store_y(push.y, at[1] + (from + i) * push.y_stride, index);
#ifdef VALUES
        store_v(push.values, row * push.k + from + i, load_x(push.x, at[0] + index * push.x_stride));
#endif
    }
#endif
}
