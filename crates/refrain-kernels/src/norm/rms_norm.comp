layout(push_constant, scalar) uniform Push {
    x_ref x;
    y_ref y;
#ifdef WEIGHT
    weight_ref weight;
#endif
    uint rows, columns;
    uvec2 extents; // of the middle and the inner of three outer dimensions
    uvec3 x_strides, y_strides;
    float eps;
} pc;

uint row_offset(uint row, uvec3 strides) {
    uint rest = row / pc.extents.y;
    return rest / pc.extents.x * strides.x + rest % pc.extents.x * strides.y + row % pc.extents.y * strides.z;
}

// Values of an invocation whose loads are issued together, so that it stalls once for all of them.
const uint LOADS_EACH = 4u;

void load_columns(uint x_at, uint column, out float values[LOADS_EACH]) {
    [[unroll]] for (uint i = 0u; i < LOADS_EACH; ++i) {
        values[i] = load_x(pc.x, x_at + min(column + i * LANES, pc.columns - 1u));
    }
}

void main() UNIFORM_FLOW {
    uint row = group_number() * ROWS + row_in_group();
    // Rows beyond the last take part in the reductions, which need the whole workgroup.
    bool inside = row < pc.rows;
    row = min(row, pc.rows - 1u);
    uint x_at = row_offset(row, pc.x_strides);
    float squares = 0.0;
    for (uint column = lane(); column < pc.columns; column += LOADS_EACH * LANES) {
        float values[LOADS_EACH];
        load_columns(x_at, column, values);
        [[unroll]] for (uint i = 0u; i < LOADS_EACH; ++i) {
            if (column + i * LANES < pc.columns) squares += values[i] * values[i];
        }
    }
    float norm = sqrt(sum_lanes(squares) / float(pc.columns) + pc.eps);
    if (!inside) return;
    uint y_at = row_offset(row, pc.y_strides);
    for (uint column = lane(); column < pc.columns; column += LOADS_EACH * LANES) {
        float values[LOADS_EACH];
        load_columns(x_at, column, values);
        [[unroll]] for (uint i = 0u; i < LOADS_EACH; ++i) {
            uint at = column + i * LANES;
            if (at >= pc.columns) break;
            float y = values[i] / norm;
#ifdef WEIGHT
            y *= load_weight(pc.weight, at);
#endif
            store_y(pc.y, y_at + at, y);
        }
    }
}
