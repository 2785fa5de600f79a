// Shared by all convolution shaders: push constants and the look-up of a sequence's state. The operands' types are
// declared by the caller.
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint TAPS = 4;

layout(push_constant, scalar) uniform Push {
    x_ref x;
    weights_ref weights;
    positions_ref positions;
    sequences_ref sequences;
    state_ref state;
#ifndef STATE_ONLY
    y_ref y;
#endif
    uint tokens, channels, states;
    uint x_stride; // between tokens
#ifndef STATE_ONLY
    uint y_stride;
#endif
} pc;

uint sequence_of(uint t) { return min(load_sequences(pc.sequences, t), pc.states - 1u); }

uint state_at(uint sequence, uint channel) { return sequence * (TAPS - 1u) * pc.channels + channel; }

// A channel's last inputs, the newest last.
float values[TAPS];

