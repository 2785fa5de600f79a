// CHUNK tokens of a value head, of which this is all that does not depend on what the head remembered before them (Yang
// et al. 2024, arXiv:2412.06464, section 3.3). Of token i, with γ_ij what j's part of the memory fades to until i:
// A_ij = β_i γ_ij k_i · k_j of earlier j, (I + A) W = (β_i γ_i k_i), (I + A) U = (β_i v_i), P_ij = γ_ij q_i · k_j of j no
// later than i. A memory M then makes each token correct it by δ = U − W Mᵀ; what is left is for those that have M.
// Tokens may be of several sequences: γ_ij is zero where two are not of one, or the sequence began anew between them.
layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer halves_ref { float16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer fours_ref { f16vec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer floats_ref { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer wide_ref { uvec4 at[]; };

layout(push_constant, scalar) uniform Push {
    q_ref q;
    k_ref k;
    v_ref v;
    decay_ref decay;
    beta_ref beta;
    positions_ref positions;
    sequences_ref sequences;
    halves_ref workspace;
    uint tokens;
    uint states; // sequences
    uint ratio; // value heads per key head
    uvec2 q_strides, k_strides, v_strides; // between tokens, between heads
} pc;

const uint SCORE_FOURS = CHUNK / 4u + 1u;
const uint TILE_COLUMNS = CHUNK / PART_COLUMNS;
const uint TILES = CHUNK / PART_ROWS * TILE_COLUMNS;
const uint TILES_EACH = (2u * TILES + SUBGROUPS - 1u) / SUBGROUPS;
const uint KEYS = CHUNK * (KEY_DIM / 8u);                                 // words of keys
const uint KEYS_EACH = (KEYS + THREADS - 1u) / THREADS;                   // that an invocation brings
const uint SOLVED_EACH = (KEY_DIM + VALUE_DIM + THREADS - 1u) / THREADS;  // columns of W and U that it solves
const uint NOBODY = ~0u;
// What a decay is at least: a memory that fades to this is gone.
const float LEAST_DECAY = 1e-13;

struct ChunkToken {
    uint owner; // its sequence
    uint kind;  // 0 padding, 1 the first of its sequence, 2 any other
    float decay; // logarithm
    float beta;
};

// What a token is among those of its sequence in the chunk.
struct ChunkPlace {
    float faded; // logarithms of decays to it, summed
    int begun;   // where the sequence began anew, if in the chunk
    float kept;  // γ_i: what is left there of the memory before the chunk
    float ahead; // what is left of the token at the end of the chunk
};

// Keys, then queries, eight halves to a word: matrix cores load from places of whole 16 bytes. Their products with keys.
shared uvec4 staged[2u * CHUNK * KEY_WORDS];
shared vec4 scores[2u * CHUNK * SCORE_FOURS];
shared ChunkToken chunk_tokens[CHUNK];
shared ChunkPlace places[CHUNK];
shared uint largest;

vec4 next_q[2u * KEYS_EACH], next_k[2u * KEYS_EACH];
vec4 x[SOLVED_EACH * (CHUNK / 4u)];

uint chunk_begin() { return gl_WorkGroupID.x * CHUNK; }
uint head() { return gl_WorkGroupID.y; }
uint key_head() { return head() / pc.ratio; }
uint block_number() { return gl_WorkGroupID.x * gl_NumWorkGroups.y + head(); }
// A token of the chunk; of the last there is where it has fewer.
uint token_of(uint i) { return min(chunk_begin() + i, pc.tokens - 1u); }

// Asks for keys and queries.
void load() {
    [[unroll]] for (uint n = 0u; n < KEYS_EACH; ++n) {
        uint number = gl_LocalInvocationIndex + n * THREADS;
        uint token = token_of(number / (KEY_DIM / 8u));
        uint d = number % (KEY_DIM / 8u) * 8u;
        load8_q(pc.q, token * pc.q_strides.x + key_head() * pc.q_strides.y + d, next_q[2u * n], next_q[2u * n + 1u]);
        load8_k(pc.k, token * pc.k_strides.x + key_head() * pc.k_strides.y + d, next_k[2u * n], next_k[2u * n + 1u]);
    }
}

// Asks for the columns that are solved.
void load_columns() {
    [[unroll]] for (uint n = 0u; n < SOLVED_EACH; ++n) {
        uint column = gl_LocalInvocationIndex + n * THREADS;
        if (column < KEY_DIM) {
            uint at = key_head() * pc.k_strides.y + column;
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                x[n * (CHUNK / 4u) + i / 4u][i % 4u] = load_k(pc.k, token_of(i) * pc.k_strides.x + at);
            }
        } else {
            uint at = head() * pc.v_strides.y + min(column - KEY_DIM, VALUE_DIM - 1u);
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                x[n * (CHUNK / 4u) + i / 4u][i % 4u] = load_v(pc.v, token_of(i) * pc.v_strides.x + at);
            }
        }
    }
}

void look_at_tokens() {
    for (uint i = gl_LocalInvocationIndex; i < CHUNK; i += THREADS) {
        uint token = token_of(i);
        bool inside = chunk_begin() + i < pc.tokens;
        int position = load_positions(pc.positions, token);
        uint owner = min(load_sequences(pc.sequences, token), pc.states - 1u);
        uint gate = token * gl_NumWorkGroups.y + head();
        float decay = log(max(load_decay(pc.decay, gate), LEAST_DECAY));
        float beta = load_beta(pc.beta, gate);
        uint kind = inside && position >= 0 ? position == 0 ? 1u : 2u : 0u;
        chunk_tokens[i] = ChunkToken(inside ? owner : NOBODY, kind, kind == 2u ? decay : 0.0, kind > 0u ? beta : 0.0);
    }
    if (gl_LocalInvocationIndex == 0u) largest = 0u;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < CHUNK; i += THREADS) {
        uint owner = chunk_tokens[i].owner;
        float faded = 0.0, behind = 0.0;
        int begun = -1;
        bool begins = false;
        [[unroll]] for (uint j = 0u; j < CHUNK; ++j) {
            ChunkToken other = chunk_tokens[j];
            bool same = other.owner == owner;
            bool is_first = same && other.kind == 1u;
            float decay = same ? other.decay : 0.0;
            faded += j <= i ? decay : 0.0;
            behind += j <= i ? 0.0 : decay;
            begun = is_first && j <= i ? int(j) : begun;
            begins = begins || is_first && j > i;
        }
        float kept = begun < 0 ? exp(faded) : 0.0;
        places[i] = ChunkPlace(faded, begun, kept, begins ? 0.0 : exp(behind));
        floats_ref(pc.workspace).at[block_number() * (BLOCK_BYTES / 4u) + KEPT / 4u + i] = kept;
    }
    barrier();
}

// γ_ij.
float fading(uint i, uint j) {
    ChunkPlace place = places[i];
    bool lasts = chunk_tokens[i].owner == chunk_tokens[j].owner && int(j) >= place.begun;
    return lasts ? exp(place.faded - places[j].faded) : 0.0;
}

f16vec4 halves_of(vec4 x) { return f16vec4(clamp(x, -65504.0, 65504.0)); }

uvec4 word_of(vec4 low, vec4 high) {
    f16vec4 first = halves_of(low), second = halves_of(high);
    return uvec4(packFloat2x16(first.xy), packFloat2x16(first.zw), packFloat2x16(second.xy), packFloat2x16(second.zw));
}

// Shares keys and queries, and stores what the memory will need of them.
void stage() {
    uint block = block_number() * (BLOCK_BYTES / 16u);
    [[unroll]] for (uint n = 0u; n < KEYS_EACH; ++n) {
        uint number = gl_LocalInvocationIndex + n * THREADS;
        uint i = number / (KEY_DIM / 8u);
        uint at = i * KEY_WORDS + number % (KEY_DIM / 8u);
        if (number < KEYS) {
            bool is = chunk_tokens[i].kind > 0u;
            ChunkPlace place = places[i];
            vec4 q[2], k[2];
            [[unroll]] for (uint part = 0u; part < 2u; ++part) {
                q[part] = is ? next_q[2u * n + part] : vec4(0.0);
                k[part] = is ? next_k[2u * n + part] : vec4(0.0);
            }
            staged[at] = word_of(k[0], k[1]);
            staged[CHUNK * KEY_WORDS + at] = word_of(q[0], q[1]);
            wide_ref(pc.workspace).at[block + QUERIES / 16u + number] = word_of(q[0] * place.kept, q[1] * place.kept);
            wide_ref(pc.workspace).at[block + KEYS_AT / 16u + number] = word_of(k[0] * place.ahead, k[1] * place.ahead);
        }
    }
    barrier();
}

// Products of keys with keys no earlier, then of queries with keys no later: tiles in which there are such.
void multiply() {
    [[unroll]] for (uint n = 0u; n < TILES_EACH; ++n) {
        uint tile = gl_SubgroupID + n * SUBGROUPS;
        bool is_key = tile < TILES;
        uint row = tile % TILES / TILE_COLUMNS * PART_ROWS;
        uint column = tile % TILE_COLUMNS * PART_COLUMNS;
        bool is = is_key ? row < column + PART_COLUMNS : tile < 2u * TILES && column < row + PART_ROWS;
        row += is_key ? 0u : CHUNK;
        SUMS sums = SUMS(0.0);
        if (is) {
            [[unroll]] for (uint depth = 0u; depth < KEY_DIM; depth += PART_DEPTH) {
                A_FRAGMENT own;
                B_FRAGMENT other;
                coopMatLoad(own, staged, row * KEY_WORDS + depth / 8u, KEY_WORDS, gl_CooperativeMatrixLayoutRowMajor);
                coopMatLoad(other, staged, column * KEY_WORDS + depth / 8u, KEY_WORDS, gl_CooperativeMatrixLayoutColumnMajor);
                sums = coopMatMulAdd(own, other, sums);
            }
            coopMatStore(sums, scores, row * SCORE_FOURS + column / 4u, SCORE_FOURS, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
    barrier();
}

// Stores P, and puts A, whose columns become rows, in place of products of keys.
void weigh() {
    uint block = block_number() * (BLOCK_BYTES / 8u) + WEIGHTS / 8u;
    for (uint n = gl_LocalInvocationIndex; n < CHUNK * (CHUNK / 4u); n += THREADS) {
        uint row = n / (CHUNK / 4u);
        uint four = n % (CHUNK / 4u);
        uint at = row * SCORE_FOURS + four;
        vec4 of_key = scores[at], of_query = scores[CHUNK * SCORE_FOURS + at];
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint column = four * 4u + c;
            of_key[c] = column > row ? chunk_tokens[column].beta * fading(column, row) * of_key[c] : 0.0;
            of_query[c] = column <= row ? fading(row, column) * of_query[c] : 0.0;
        }
        scores[at] = of_key;
        fours_ref(pc.workspace).at[block + n] = halves_of(of_query);
    }
    barrier();
}

// What value i of the columns, once it is known, takes from those below; of i's own four and those before it nothing.
#define SOLVE(i) \
    [[unroll]] for (uint four = (i) / 4u; four < CHUNK / 4u; ++four) { \
        x[n * (CHUNK / 4u) + four] -= scores[(i) * SCORE_FOURS + four] * x[n * (CHUNK / 4u) + (i) / 4u][(i) % 4u]; \
    }

// Columns of W and U, from above to below.
void solve() {
    [[unroll]] for (uint n = 0u; n < SOLVED_EACH; ++n) {
        bool is_key = gl_LocalInvocationIndex + n * THREADS < KEY_DIM;
        [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
            ChunkToken token = chunk_tokens[i];
            float factor = is_key ? token.beta * places[i].kept : token.beta;
            float own = x[n * (CHUNK / 4u) + i / 4u][i % 4u];
            x[n * (CHUNK / 4u) + i / 4u][i % 4u] = token.kind > 0u ? own * factor : 0.0;
        }
        SOLVE_ALL
    }
}

void store_solved() {
    [[unroll]] for (uint n = 0u; n < SOLVED_EACH; ++n) {
        uint column = gl_LocalInvocationIndex + n * THREADS;
        float top = 0.0;
        if (column < KEY_DIM) {
            uint at = block_number() * (BLOCK_BYTES / 2u) + CORRECTIONS / 2u + column;
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                pc.workspace.at[at + i * KEY_DIM] = float16_t(clamp(-x[n * (CHUNK / 4u) + i / 4u][i % 4u], -65504.0, 65504.0));
            }
        } else if (column < KEY_DIM + VALUE_DIM) {
            uint at = block_number() * (BLOCK_BYTES / 4u) + CORRECTED / 4u + column - KEY_DIM;
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                float solved = x[n * (CHUNK / 4u) + i / 4u][i % 4u];
                floats_ref(pc.workspace).at[at + i * VALUE_DIM] = solved;
                top = max(top, abs(solved));
            }
        }
        // As bits, which are ordered alike.
        uint bits = subgroupMax(floatBitsToUint(top));
        if (subgroupElect()) atomicMax(largest, bits);
    }
    barrier();
    if (gl_LocalInvocationIndex == 0u) {
        uint at = block_number() * (BLOCK_BYTES / 4u) + LARGEST / 4u;
        floats_ref(pc.workspace).at[at] = uintBitsToFloat(largest);
    }
}

void main() UNIFORM_FLOW {
    load();
    look_at_tokens();
    stage();
    load_columns();
    multiply();
    weigh();
    solve();
    store_solved();
}
