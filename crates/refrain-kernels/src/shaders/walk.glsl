// Strided operands: where element `element` (row-major) of a shape lies in each of WALKED operands.
// From word `first` on, the record holds the rank, then for each dimension, outermost first, its
// extent and its stride in each operand.
void walk(words_ref record, uint first, uint element, out uint at[WALKED]) {
    uint rank = record.at[first];
    uint rest = element;
    [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] = 0u;
    for (uint d = rank; d > 1u; d--) {
        uint row = first + 1u + (d - 1u) * (WALKED + 1u);
        uint extent = record.at[row];
        uint outer = rest / extent;
        uint coordinate = rest - outer * extent;
        [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] += coordinate * record.at[row + 1u + k];
        rest = outer;
    }
    if (rank > 0u) {
        [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] += rest * record.at[first + 2u + k];
    }
}
