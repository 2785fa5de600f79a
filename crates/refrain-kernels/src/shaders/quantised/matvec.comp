// Few tokens: a row of invocations takes EACH rows of w and sums over k for all tokens at once.
// Neighbouring invocations take neighbouring runs, so that what they need of x lies together too; an
// invocation loads LOADS runs of each row before it computes.
layout(constant_id = 5) const uint VECTORS = 1;
layout(constant_id = 6) const uint LOADS = 2;
layout(constant_id = 7) const uint EACH = 1;

float sums[EACH][VECTORS];

// Adds the products of one run of each row, whose first value is value `k` of the row.
void add_runs(uint k, RUN_BITS runs[EACH], vec2 parameters[EACH]) {
    vec4 low[EACH];
#if BITS != 8
    vec4 high[EACH];
#endif
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        low[r] = quants(runs[r], 0u);
#if BITS != 8
        high[r] = quants(runs[r], 4u);
#endif
    }
    [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
        uint at = min(t, pc.tokens - 1u) * pc.x_stride + k;
        vec4 x;
#if BITS != 8
        vec4 y;
        load8_x(pc.x, at, x, y);
        float total = dot(x + y, vec4(1.0));
#else
        load4_x(pc.x, at, x);
        float total = dot(x, vec4(1.0));
#endif
        [[unroll]] for (uint r = 0u; r < EACH; ++r) {
            float product = dot(x, low[r]);
#if BITS != 8
            product += dot(y, high[r]);
#endif
            sums[r][t] += parameters[r].x * product;
#ifdef ZERO_BIAS
            sums[r][t] += parameters[r].y * total;
#endif
        }
    }
}

void accumulate(uint row) {
    uint runs_per_row = pc.k / RUN;
    uint groups_per_row = pc.k / GROUP;
    for (uint base = lane(); base < runs_per_row; base += LANES * LOADS) {
        RUN_BITS runs[LOADS][EACH];
        vec2 parameters[LOADS][EACH];
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint run = min(base + j * LANES, runs_per_row - 1u);
            [[unroll]] for (uint r = 0u; r < EACH; ++r) {
                uint n = min(row + r, pc.n - 1u);
                runs[j][r] = load_quants(pc.quants, n, pc.k, run);
                parameters[j][r] = PARAMETERS(n * groups_per_row + run * RUN / GROUP);
            }
        }
        [[unroll]] for (uint j = 0u; j < LOADS; ++j) {
            uint run = base + j * LANES;
            if (run < runs_per_row) add_runs(run * RUN, runs[j], parameters[j]);
        }
    }
}

void main() {
    uint row = (group_number() * ROWS + row_in_group()) * EACH;
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) sums[r][t] = 0.0;
    }
    accumulate(row);
    [[unroll]] for (uint r = 0u; r < EACH; ++r) {
        [[unroll]] for (uint t = 0u; t < VECTORS; ++t) {
            float total = sum_lanes(sums[r][t]);
            if (lane() == 0u && t < pc.tokens && row + r < pc.n) {
                store_c(pc.c, t * pc.c_strides.x + (row + r) * pc.c_strides.y, total);
            }
        }
    }
}
