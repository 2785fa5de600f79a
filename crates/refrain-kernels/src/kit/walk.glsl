// Strided traversal: returns the position of element `element` (row-major) in each of WALKED operands. From word
// `first` on, the record holds, for each of `rank` dimensions, outermost first, its extent and its stride in each
// operand. The rank is a specialisation constant, so that the loop is unrolled and all loads from the record overlap.
void walk(words_ref record, uint first, uint rank, uint element, out uint at[WALKED]) {
    uint rest = element;
    [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] = 0u;
    [[unroll]] for (uint d = rank; d > 1u; d--) {
        uint row = first + (d - 1u) * (WALKED + 1u);
        uint extent = record.at[row];
        uint outer = rest / extent;
        uint coordinate = rest - outer * extent;
        [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] += coordinate * record.at[row + 1u + k];
        rest = outer;
    }
    if (rank > 0u) {
        [[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] += rest * record.at[first + 1u + k];
    }
}
