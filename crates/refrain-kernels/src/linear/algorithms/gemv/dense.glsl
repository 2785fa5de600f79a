// Float weights: a chunk is 16 bytes of a row.
const uint TERMS = 1u;

#ifdef WIDE
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer w_wide { uvec4 at[]; };

struct Chunk { uvec4 bits; };

Chunk load_chunk(Planes planes, uint row, uint number) {
    return Chunk(w_wide(planes.w).at[(w_at + row * W_STRIDE) / CHUNK + number]);
}

vec4 chunk_quad(Chunk chunk, uint number) {
#if CHUNK == 4
    return uintBitsToFloat(chunk.bits);
#else
    uvec2 bits = number == 0u ? chunk.bits.xy : chunk.bits.zw;
    return vec4(UNPACK(bits.x), UNPACK(bits.y));
#endif
}
#else
struct Chunk { vec4 quads[CHUNK / 4]; };

Chunk load_chunk(Planes planes, uint row, uint number) {
    Chunk chunk;
    UNROLL for (uint i = 0u; i < CHUNK; ++i) {
        // Beyond the last value x is zero, but the memory there may hold NaN.
        uint k = number * CHUNK + i;
        chunk.quads[i / 4u][i % 4u] = k < COLUMNS ? load_w(planes.w, w_at + row * W_STRIDE + k) : 0.0;
    }
    return chunk;
}

vec4 chunk_quad(Chunk chunk, uint number) { return chunk.quads[number]; }
#endif

float chunk_sum(Chunk chunk, uint term, float product, float total) { return product; }

// Stored chunks need no conversion.
#define StoredChunk Chunk
#define load_stored load_chunk
#define chunk_of(stored) stored
