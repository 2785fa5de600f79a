// Probes the fragment layout: writes which elements each lane holds of A, of B and of the accumulator, with elements
// numbered row by row. Then writes the product of two small matrices, added to numbered sums.
layout(local_size_x = LANES) in;
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer held_ref { uint at[]; };
layout(push_constant, scalar) uniform Push { held_ref held; } pc;

shared float16_t a_halves[ROWS * DEPTH];
shared float16_t b_halves[DEPTH * COLUMNS];
shared float floats[ROWS * COLUMNS];

coopmat<float16_t, gl_ScopeSubgroup, ROWS, DEPTH, gl_MatrixUseA> a;
coopmat<float16_t, gl_ScopeSubgroup, DEPTH, COLUMNS, gl_MatrixUseB> b;
coopmat<float, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUseAccumulator> sums;

// Small integers have exact products.
int number_of_a(uint i) { return int(i * 7u % 5u) - 2; }
int number_of_b(uint i) { return int(i * 3u % 7u) - 3; }

void load() {
    barrier();
    coopMatLoad(a, a_halves, 0, DEPTH, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, b_halves, 0, COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(sums, floats, 0, COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
}

void main() {
    uint lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < ROWS * DEPTH; i += LANES) a_halves[i] = float16_t(i);
    for (uint i = lane; i < DEPTH * COLUMNS; i += LANES) b_halves[i] = float16_t(i);
    for (uint i = lane; i < ROWS * COLUMNS; i += LANES) floats[i] = float(i);
    load();
    const uint elements = 8u;
    // More elements mean an unknown layout.
    bool held = max(max(a.length(), b.length()), sums.length()) <= elements;
    [[unroll]] for (uint i = 0u; i < elements; ++i) {
        uint at = gl_SubgroupInvocationID * elements + i;
        pc.held.at[at] = held && i < a.length() ? uint(a[i]) : ~0u;
        pc.held.at[LANES * elements + at] = held && i < b.length() ? uint(b[i]) : ~0u;
        pc.held.at[2u * LANES * elements + at] = held && i < sums.length() ? uint(sums[i]) : ~0u;
    }

    for (uint i = lane; i < ROWS * DEPTH; i += LANES) a_halves[i] = float16_t(number_of_a(i));
    for (uint i = lane; i < DEPTH * COLUMNS; i += LANES) b_halves[i] = float16_t(number_of_b(i));
    load();
    sums = coopMatMulAdd(a, b, sums);
    coopMatStore(sums, floats, 0, COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    for (uint i = lane; i < ROWS * COLUMNS; i += LANES) pc.held.at[3u * LANES * elements + i] = uint(int(floats[i]));
}
