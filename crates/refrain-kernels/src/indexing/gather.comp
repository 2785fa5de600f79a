// out[element] = source[at + index · axis_stride], or 0 if the index is outside the axis.
layout(local_size_x_id = 0) in;
layout(constant_id = 5) const uint RANK = 1;
layout(push_constant, scalar) uniform Arguments {
    source_ref source;
    indices_ref indices;
    out_ref out_;
    words_ref record;
    uint count;
    uint axis_extent;
    uint axis_stride;
} push;

void main() {
    uint element = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (element >= push.count) return;
    uint at[WALKED];
    walk(push.record, 0u, RANK, element, at);
    // A negative index becomes a large unsigned one.
    uint index = uint(load_indices(push.indices, at[1]));
    if (index < push.axis_extent) {
        store_out(push.out_, at[2], load_source(push.source, at[0] + index * push.axis_stride));
    } else {
        store_out(push.out_, at[2], OUT_ZERO);
    }
}
