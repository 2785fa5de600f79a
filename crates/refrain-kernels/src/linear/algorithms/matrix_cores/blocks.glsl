// A lane takes CHUNK neighbouring values of a row of weights at once; a block is what the lanes that share the
// row take together, STEPS fragments deep.
const uint BLOCK = CHUNK * LANES_PER_ROW;
const uint STEPS = CHUNK / VALUES;
