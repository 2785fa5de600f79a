layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
    message_ref message; // count and three unused words; then entries: address (two words), value, unused
} pc;
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer word_ref { uint value; };

void main() {
    uint count = load_message(pc.message, 0u);
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
        uint at = 4u + 4u * i;
        uvec2 address = uvec2(load_message(pc.message, at), load_message(pc.message, at + 1u));
        word_ref(address).value = load_message(pc.message, at + 2u);
    }
}
