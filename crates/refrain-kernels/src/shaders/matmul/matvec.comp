// Few rows of a: a row of invocations takes EACH columns of b and sums over k for every row of a.
layout(constant_id = 5) const uint VECTORS = 1;
layout(constant_id = 6) const uint LOADS = 2;
layout(constant_id = 7) const uint EACH = 1;

float sums[EACH][VECTORS];

#ifdef WIDE
// RUN neighbouring values of a row: 16 bytes of b.
struct Run {
    vec4 low;
#if RUN == 8
    vec4 high;
#endif
};

Run load_a_run(uint at) {
    Run run;
#if RUN == 8
    load8_a(pc.a, at, run.low, run.high);
#else
    load4_a(pc.a, at, run.low);
#endif
    return run;
}

Run load_b_run(uint at) {
    Run run;
#if RUN == 8
    load8_b(pc.b, at, run.low, run.high);
#else
    load4_b(pc.b, at, run.low);
#endif
    return run;
}

float product(Run x, Run y) {
#if RUN == 8
    return dot(x.low, y.low) + dot(x.high, y.high);
#else
    return dot(x.low, y.low);
#endif
}
#endif

void accumulate(uint a_at, uint b_at, uint column, uint start) {
#ifdef WIDE
    uint step = LANES * RUN;
    for (uint k = start * RUN; k < pc.k; k += step * LOADS) {
        Run w[EACH][LOADS];
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            uint from = b_at + min(column + r, pc.n - 1u) * pc.b_strides.y;
            [[unroll]] for (uint j = 0u; j < LOADS; ++j) w[r][j] = load_b_run(from + min(k + j * step, pc.k - RUN));
        }
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            if (k + j * step >= pc.k) break;
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                Run x = load_a_run(a_at + min(t, pc.m - 1u) * pc.a_strides.x + k + j * step);
                [[unroll]] for (uint r = 0u; r < EACH; ++r) sums[r][t] += product(x, w[r][j]);
            }
        }
    }
#else
    for (uint k = start; k < pc.k; k += LANES) {
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            float w = load_b(pc.b, b_at + k * pc.b_strides.x + min(column + r, pc.n - 1u) * pc.b_strides.y);
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                sums[r][t] += w * load_a(pc.a, a_at + min(t, pc.m - 1u) * pc.a_strides.x + k * pc.a_strides.y);
            }
        }
    }
#endif
}

void main() {
    uint column = (group_number() * ROWS + row_in_group()) * EACH;
    for (uint batch = gl_WorkGroupID.z; batch < pc.batches; batch += gl_NumWorkGroups.z) {
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) sums[r][t] = 0.0;
        }
        accumulate(batch_offset(batch, pc.a_batch), batch_offset(batch, pc.b_batch), column, lane());
        uint c_at = batch_offset(batch, pc.c_batch);
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
                float total = sum_lanes(sums[r][t]);
                if (lane() == 0u && t < pc.m && column + r < pc.n) {
                    store_c(pc.c, c_at + t * pc.c_strides.x + (column + r) * pc.c_strides.y, total);
                }
            }
        }
    }
}
