// Quantised weights: a chunk is CHUNK consecutive values in WORDS words, with the scales (and biases) of its TERMS
// groups.
struct Chunk {
    uint words[WORDS];
    vec2 parameters[TERMS];
};

// A chunk as stored, before its parameters are converted.
#ifdef NESTED
const uint STORED_TERMS = 1u; // a chunk's groups share the words of record_words
#else
const uint STORED_TERMS = TERMS;
#endif
struct StoredChunk {
    uint words[WORDS];
    STORED_PARAMETERS parameters[STORED_TERMS];
    uint group;
};

#if WORDS % 4 == 0
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer words4_ref { uvec4 at[]; };
#elif WORDS % 2 == 0
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer words2_ref { uvec2 at[]; };
#endif

StoredChunk load_stored(Planes planes, uint row, uint number) {
    StoredChunk chunk;
    uint at = row * (COLUMNS / CHUNK) + number;
#if WORDS % 4 == 0
    [[unroll]] for (uint i = 0u; i < WORDS; i += 4u) {
        uvec4 words = words4_ref(planes.quants).at[at * (WORDS / 4u) + i / 4u];
        [[unroll]] for (uint j = 0u; j < 4u; ++j) chunk.words[i + j] = words[j];
    }
#elif WORDS % 2 == 0
    [[unroll]] for (uint i = 0u; i < WORDS; i += 2u) {
        uvec2 words = words2_ref(planes.quants).at[at * (WORDS / 2u) + i / 2u];
        chunk.words[i] = words.x;
        chunk.words[i + 1u] = words.y;
    }
#else
    [[unroll]] for (uint i = 0u; i < WORDS; ++i) chunk.words[i] = planes.quants.at[at * WORDS + i];
#endif
    chunk.group = row * (COLUMNS / GROUP) + number * CHUNK / GROUP;
    [[unroll]] for (uint i = 0u; i < STORED_TERMS; ++i) {
        chunk.parameters[i] = stored_parameters(planes, chunk.group + i);
    }
    return chunk;
}

Chunk chunk_of(StoredChunk stored) {
    Chunk chunk;
    chunk.words = stored.words;
    [[unroll]] for (uint i = 0u; i < TERMS; ++i) {
        chunk.parameters[i] = parameters_of(stored.parameters[i % STORED_TERMS], stored.group + i);
    }
    return chunk;
}

Chunk load_chunk(Planes planes, uint row, uint number) { return chunk_of(load_stored(planes, row, number)); }

// Returns the bits of values 4 · number to 4 · number + 3 of the chunk, from the lowest bit on.
uint quad_bits(Chunk chunk, uint number) {
    uint bit = 4u * BITS * number;
    uint bits = chunk.words[bit / 32u] >> (bit % 32u);
#if BITS != 2 && BITS != 4 && BITS != 8
    if (bit % 32u > 32u - 4u * BITS) bits |= chunk.words[min(bit / 32u + 1u, WORDS - 1u)] << (32u - bit % 32u);
#endif
    return bits;
}

// Returns those values, minus ZERO.
vec4 chunk_quad(Chunk chunk, uint number) { return four_quants(quad_bits(chunk, number)); }

float chunk_sum(Chunk chunk, uint term, float product, float total) {
    float sum = chunk.parameters[term].x * product;
#ifdef ZERO_BIAS
    sum += chunk.parameters[term].y * total;
#endif
    return sum;
}
