// y[row] = the row's elements, ascending, by a bitonic network over keys.
layout(local_size_x_id = 0) in;
// Elements per workgroup: two per invocation.
layout(constant_id = 3) const uint BLOCK = 512;
layout(constant_id = 4) const uint STAGE = 0;
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer keys_ref { uint at[]; };
layout(push_constant, scalar) uniform Arguments {
    x_ref x;
    y_ref y;
    keys_ref keys;
    uint rows;
    uint columns;
    // Elements per padded row: a power of two.
    uint padded;
    // Length of the sorted runs, and distance of compared elements.
    uint size;
    uint stride;
} push;

const uint SINGLE_BLOCK = 0u, BLOCKS = 1u, ACROSS_BLOCKS = 2u, WITHIN_BLOCKS = 3u, LAST = 4u;
const uint PADDING_KEY = 0xffffffffu;

#ifdef FLOATS
const uint NAN_KEY = 0xfffffffeu;

uint key_of(float value) {
    uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return NAN_KEY;
    return bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
}

float value_of(uint key) {
    if (key == NAN_KEY) return uintBitsToFloat(0x7fc00000u);
    return uintBitsToFloat(key >> 31 != 0u ? key & 0x7fffffffu : ~key);
}
#endif
#ifdef SIGNED
uint key_of(int value) { return uint(value) ^ 0x80000000u; }
int value_of(uint key) { return int(key ^ 0x80000000u); }
#endif
#ifdef UNSIGNED
uint key_of(uint value) { return value; }
uint value_of(uint key) { return key; }
#endif

shared uint block_keys[BLOCK];

// Returns the first element of pair `number`, of two elements `stride` apart.
uint first_of(uint number, uint stride) { return 2u * stride * (number / stride) + number % stride; }

// Whether two keys must be swapped. `index` is that of the first in its row; runs of `size` alternately ascend and
// descend.
bool out_of_order(uint first, uint second, uint index, uint size) {
    bool descends = (index & size) != 0u && size < push.padded;
    return descends ? first < second : first > second;
}

void compare(uint start, uint size, uint stride) {
    uint i = first_of(gl_LocalInvocationIndex, stride);
    uint first = block_keys[i], second = block_keys[i + stride];
    if (out_of_order(first, second, start + i, size)) {
        block_keys[i] = second;
        block_keys[i + stride] = first;
    }
}

void main() UNIFORM_FLOW {
    uint blocks = (push.padded + BLOCK - 1u) / BLOCK;
    uint group = group_number();
    uint row = group / blocks;
    if (row >= push.rows) return;
    if (STAGE == ACROSS_BLOCKS) {
        // Pairs are numbered across the device: blocks are powers of two, and so are rows of several.
        uint i = first_of(group * (BLOCK / 2u) + gl_LocalInvocationIndex, push.stride);
        uint first = push.keys.at[i], second = push.keys.at[i + push.stride];
        if (out_of_order(first, second, i % push.padded, push.size)) {
            push.keys.at[i] = second;
            push.keys.at[i + push.stride] = first;
        }
        return;
    }
    uint start = (group % blocks) * BLOCK;
    for (uint i = gl_LocalInvocationIndex; i < BLOCK; i += BLOCK / 2u) {
        uint key = PADDING_KEY;
        if (STAGE == WITHIN_BLOCKS || STAGE == LAST) {
            key = push.keys.at[row * push.padded + start + i];
        } else if (start + i < push.columns) {
            key = key_of(load_x(push.x, row * push.columns + start + i));
        }
        block_keys[i] = key;
    }
    barrier();
    if (STAGE == WITHIN_BLOCKS || STAGE == LAST) {
        for (uint stride = BLOCK / 2u; stride > 0u; stride /= 2u) {
            compare(start, push.size, stride);
            barrier();
        }
    } else {
        for (uint size = 2u; size <= BLOCK; size *= 2u) {
            for (uint stride = size / 2u; stride > 0u; stride /= 2u) {
                compare(start, size, stride);
                barrier();
            }
        }
    }
    for (uint i = gl_LocalInvocationIndex; i < BLOCK; i += BLOCK / 2u) {
        if (STAGE == BLOCKS || STAGE == WITHIN_BLOCKS) {
            push.keys.at[row * push.padded + start + i] = block_keys[i];
        } else if (start + i < push.columns) {
            store_y(push.y, row * push.columns + start + i, value_of(block_keys[i]));
        }
    }
}
