// A lane loads CHUNK consecutive values of a row of weights at once. A block is the chunks of all lanes that share the
// row; it is STEPS fragments deep.
const uint BLOCK = CHUNK * LANES_PER_ROW;
const uint STEPS = CHUNK / VALUES;
