// Loads a sequence's last TAPS - 1 inputs before token `end` into `values`; returns how many of them belong to this
// call.
uint look_back(uint end, uint sequence, uint channel) {
    uint t = end;
    uint found = 0u;
    // Whether the last token found is the first of its sequence.
    bool begun = false;
    [[unroll]] for (uint j = TAPS - 1u; j > 0u; --j) {
        bool own = false;
        while (!own && !begun && t > 0u) {
            --t;
            own = sequence_of(t) == sequence && load_positions(pc.positions, t) >= 0;
        }
        if (own) {
            values[j] = load_x(pc.x, t * pc.x_stride + channel);
            begun = load_positions(pc.positions, t) == 0;
            ++found;
        } else {
            uint older = (j - 1u + found) * pc.channels;
            values[j] = begun ? 0.0 : load_state(pc.state, state_at(sequence, channel) + older);
        }
    }
    return found;
}

