// c[m, n] = sum over k of a[m, k] * b[k, n], for each batch, with arbitrary strides.
layout(push_constant, scalar) uniform Push {
    a_ref a;
    b_ref b;
    c_ref c;
#if K_SPLITS > 1
    sums_ref partial_sums;
    counters_ref tickets;
#endif
    uint m, n, k;
    uvec2 a_strides; // along m, k
    uvec2 b_strides; // along k, n
    uvec2 c_strides; // along m, n
    uint batches, inner_batches;
    uvec2 a_batch, b_batch, c_batch; // strides along the outer and the inner batch dimension
} pc;

uint batch_offset(uint batch, uvec2 strides) {
    return batch / pc.inner_batches * strides.x + batch % pc.inner_batches * strides.y;
}
