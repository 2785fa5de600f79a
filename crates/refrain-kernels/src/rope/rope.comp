layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    x_ref x;
    positions_ref positions;
    frequencies_ref frequencies;
    y_ref y;
    uint tokens, heads;
    uint units; // per head: pairs, then copied values
    uint pairs;
    uvec3 x_strides;
    uint positions_stride, frequencies_stride;
    uvec3 y_strides;
    float scale;
} pc;

void main() {
    uint e = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    uint unit = e % pc.units;
    uint head = e / pc.units % pc.heads;
    uint token = e / pc.units / pc.heads;
    if (token >= pc.tokens) return;
    uint x_at = token * pc.x_strides.x + head * pc.x_strides.y;
    uint y_at = token * pc.y_strides.x + head * pc.y_strides.y;
    if (unit >= pc.pairs) {
        uint d = unit + pc.pairs;
        store_y(pc.y, y_at + d * pc.y_strides.z, load_x(pc.x, x_at + d * pc.x_strides.z));
        return;
    }
#if INTERLEAVED
    uint a = 2u * unit, b = a + 1u;
#else
    uint a = unit, b = unit + pc.pairs;
#endif
    int position = load_positions(pc.positions, token * pc.positions_stride);
    float frequency = load_frequencies(pc.frequencies, unit * pc.frequencies_stride);
    precise float angle = float(position) * frequency;
    vec2 sc = sincos(angle) * pc.scale;
    float x = load_x(pc.x, x_at + a * pc.x_strides.z);
    float y = load_x(pc.x, x_at + b * pc.x_strides.z);
    store_y(pc.y, y_at + a * pc.y_strides.z, x * sc.y - y * sc.x);
    store_y(pc.y, y_at + b * pc.y_strides.z, y * sc.y + x * sc.x);
}
