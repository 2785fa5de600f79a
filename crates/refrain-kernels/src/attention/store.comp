// Rounds keys or values to a block format and stores them in the cache. An invocation takes two neighbouring blocks of
// a head, whose scales share a word.
layout(local_size_x_id = 0) in;

layout(push_constant, scalar) uniform Push {
    rows_ref rows;
    slots_ref slots;
    state_words state;
    uint tokens, heads, dim;
    uint slot_count;
    uvec2 strides; // between tokens, between heads
} pc;

// Stores the quants of a block of 32 values; returns the bits of its scale.
uint store_block(uint from, uint to) {
    float values[32];
    float largest = 0.0;
    [[unroll]] for (uint i = 0u; i < 32u; ++i) {
        values[i] = load_rows(pc.rows, from + i);
        state_fold(largest, values[i]);
    }
    uint scale = state_scale_of(largest);
    [[unroll]] for (uint w = 0u; w < STATE_BITS; ++w) {
        uint word = 0u;
        [[unroll]] for (uint i = 0u; i < 32u / STATE_BITS; ++i) {
            word |= state_quant_of(values[w * (32u / STATE_BITS) + i], scale, i * STATE_BITS);
        }
        pc.state.at[to + w] = word;
    }
    return scale;
}

void main() {
    uint number = group_number() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint pairs = (pc.dim + 63u) / 64u;
    if (number >= pc.tokens * pc.heads * pairs) return;
    uint pair = number % pairs;
    uint head = number / pairs % pc.heads;
    uint token = number / pairs / pc.heads;
    // A negative slot becomes a large unsigned one.
    uint slot = uint(load_slots(pc.slots, token));
    if (slot >= pc.slot_count) return;
    uint from = token * pc.strides.x + head * pc.strides.y + pair * 64u;
    uint row = (slot * pc.heads + head) * state_row_words(pc.dim);
    uint to = row + state_quant_words(pair * 64u);
    uint scales = store_block(from, to);
    if (pair * 64u + 32u < pc.dim) scales |= store_block(from + 32u, to + STATE_BITS) << 16;
    pc.state.at[row + state_quant_words(pc.dim) + pair] = scales;
}
