// What each lane holds of a matrix whose elements are numbered row by row: as A, as B, as sums.
layout(local_size_x = LANES) in;
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer held_ref { uint at[]; };
layout(push_constant, scalar) uniform Push { held_ref held; } pc;

shared float16_t halves[SIZE * SIZE];
shared float floats[SIZE * SIZE];

void main() {
    for (uint i = gl_LocalInvocationIndex; i < SIZE * SIZE; i += LANES) {
        halves[i] = float16_t(i);
        floats[i] = float(i);
    }
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, SIZE, SIZE, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, SIZE, SIZE, gl_MatrixUseB> b;
    coopmat<float, gl_ScopeSubgroup, SIZE, SIZE, gl_MatrixUseAccumulator> sums;
    coopMatLoad(a, halves, 0, SIZE, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, halves, 0, SIZE, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(sums, floats, 0, SIZE, gl_CooperativeMatrixLayoutRowMajor);
    const uint elements = 8u;
    uint at = gl_SubgroupInvocationID * elements;
    [[unroll]] for (uint i = 0u; i < elements; ++i) {
        // More or fewer elements are an order that nobody knows.
        bool held = a.length() == elements && b.length() == elements && sums.length() == elements;
        pc.held.at[at + i] = held ? uint(a[i]) : ~0u;
        pc.held.at[LANES * elements + at + i] = held ? uint(b[i]) : ~0u;
        pc.held.at[2u * LANES * elements + at + i] = held ? uint(sums[i]) : ~0u;
    }
}
