// The products of CHUNK tokens of a value head that do not depend on the state before the chunk (Yang et al. 2024,
// arXiv:2412.06464, section 3.3). For token i, with γ_ij the decay from token j to token i and γ_i that from the
// chunk's start: A_ij = β_i γ_ij k_i · k_j for j < i, (I + A) W = (β_i γ_i k_i), (I + A) U = (β_i v_i), P_ij = γ_ij q_i
// · k_j for j ≤ i. With the state S before the chunk, tokens correct it by δ = U − W Sᵀ: inter_chunk.comp. Tokens may
// belong to several sequences: γ_ij is zero between tokens of two sequences, and across a sequence's reset.
layout(local_size_x_id = 0) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer f16_ref { float16_t at[]; };
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
    f16_ref workspace;
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
const uint KEYS_EACH = (KEYS + THREADS - 1u) / THREADS;                   // of an invocation
const uint SOLVED_EACH = (KEY_DIM + VALUE_DIM + THREADS - 1u) / THREADS;  // columns of W and U of an invocation
const uint NO_SEQUENCE = ~0u;
// Lower bound of decays, so that their logarithms are finite. States that decay this far vanish.
const float MIN_DECAY = 1e-13;

struct ChunkToken {
    uint sequence;
    uint kind;  // 0 padding, 1 the first of its sequence, 2 any other
    float log_decay;
    float beta;
};

// Accumulated decays of a token within its sequence's tokens of the chunk.
struct TokenDecay {
    float log_decay;  // sum of the log decays up to this token
    int reset_at;     // index of the last reset of the sequence in the chunk, or -1
    float from_start; // γ_i: decay since the start of the chunk
    float to_end;     // decay from this token to the end of the chunk
};

// Keys, then queries, eight f16 to a word, since matrix cores load from multiples of 16 bytes; then their products with
// keys.
shared uvec4 staged[2u * CHUNK * KEY_WORDS];
shared vec4 scores[2u * CHUNK * SCORE_FOURS];
shared ChunkToken chunk_tokens[CHUNK];
shared TokenDecay token_decays[CHUNK];
shared uint largest;

vec4 next_q[2u * KEYS_EACH], next_k[2u * KEYS_EACH];
vec4 x[SOLVED_EACH * (CHUNK / 4u)];

uint chunk_begin() { return gl_WorkGroupID.x * CHUNK; }
uint head() { return gl_WorkGroupID.y; }
uint key_head() { return head() / pc.ratio; }
uint block_number() { return gl_WorkGroupID.x * gl_NumWorkGroups.y + head(); }
// Token i of the chunk, clamped to the last token.
uint token_of(uint i) { return min(chunk_begin() + i, pc.tokens - 1u); }

// Issues the loads of keys and queries.
void load() {
    [[unroll]] for (uint n = 0u; n < KEYS_EACH; ++n) {
        uint number = gl_LocalInvocationIndex + n * THREADS;
        uint token = token_of(number / (KEY_DIM / 8u));
        uint d = number % (KEY_DIM / 8u) * 8u;
        load8_q(pc.q, token * pc.q_strides.x + key_head() * pc.q_strides.y + d, next_q[2u * n], next_q[2u * n + 1u]);
        load8_k(pc.k, token * pc.k_strides.x + key_head() * pc.k_strides.y + d, next_k[2u * n], next_k[2u * n + 1u]);
    }
}

// Loads the right-hand sides of W and U: columns of keys and values.
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

void load_tokens() {
    for (uint i = gl_LocalInvocationIndex; i < CHUNK; i += THREADS) {
        uint token = token_of(i);
        bool inside = chunk_begin() + i < pc.tokens;
        int position = load_positions(pc.positions, token);
        uint sequence = min(load_sequences(pc.sequences, token), pc.states - 1u);
        uint gate = token * gl_NumWorkGroups.y + head();
        float decay = log(max(load_decay(pc.decay, gate), MIN_DECAY));
        float beta = load_beta(pc.beta, gate);
        uint kind = inside && position >= 0 ? position == 0 ? 1u : 2u : 0u;
        chunk_tokens[i] = ChunkToken(inside ? sequence : NO_SEQUENCE, kind, kind == 2u ? decay : 0.0, kind > 0u ? beta : 0.0);
    }
    if (gl_LocalInvocationIndex == 0u) largest = 0u;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < CHUNK; i += THREADS) {
        uint sequence = chunk_tokens[i].sequence;
        float log_decay = 0.0, after = 0.0;
        int reset_at = -1;
        bool reset_after = false;
        [[unroll]] for (uint j = 0u; j < CHUNK; ++j) {
            ChunkToken other = chunk_tokens[j];
            bool same = other.sequence == sequence;
            bool is_first = same && other.kind == 1u;
            float decay = same ? other.log_decay : 0.0;
            log_decay += j <= i ? decay : 0.0;
            after += j <= i ? 0.0 : decay;
            reset_at = is_first && j <= i ? int(j) : reset_at;
            reset_after = reset_after || is_first && j > i;
        }
        float from_start = reset_at < 0 ? exp(log_decay) : 0.0;
        token_decays[i] = TokenDecay(log_decay, reset_at, from_start, reset_after ? 0.0 : exp(after));
        floats_ref(pc.workspace).at[block_number() * (BLOCK_BYTES / 4u) + DECAYS_AT / 4u + i] = from_start;
    }
    barrier();
}

// γ_ij.
float decay_between(uint i, uint j) {
    TokenDecay decay_of = token_decays[i];
    bool lasts = chunk_tokens[i].sequence == chunk_tokens[j].sequence && int(j) >= decay_of.reset_at;
    return lasts ? exp(decay_of.log_decay - token_decays[j].log_decay) : 0.0;
}

f16vec4 f16_of(vec4 x) { return f16vec4(clamp(x, -65504.0, 65504.0)); }

uvec4 word_of(vec4 low, vec4 high) {
    f16vec4 first = f16_of(low), second = f16_of(high);
    return uvec4(packFloat2x16(first.xy), packFloat2x16(first.zw), packFloat2x16(second.xy), packFloat2x16(second.zw));
}

// Stores keys and queries in shared memory, and γ q and γ k in the workspace.
void stage() {
    uint block = block_number() * (BLOCK_BYTES / 16u);
    [[unroll]] for (uint n = 0u; n < KEYS_EACH; ++n) {
        uint number = gl_LocalInvocationIndex + n * THREADS;
        uint i = number / (KEY_DIM / 8u);
        uint at = i * KEY_WORDS + number % (KEY_DIM / 8u);
        if (number < KEYS) {
            bool is = chunk_tokens[i].kind > 0u;
            TokenDecay decay_of = token_decays[i];
            vec4 q[2], k[2];
            [[unroll]] for (uint part = 0u; part < 2u; ++part) {
                q[part] = is ? next_q[2u * n + part] : vec4(0.0);
                k[part] = is ? next_k[2u * n + part] : vec4(0.0);
            }
            staged[at] = word_of(k[0], k[1]);
            staged[CHUNK * KEY_WORDS + at] = word_of(q[0], q[1]);
            wide_ref(pc.workspace).at[block + Q_AT / 16u + number] = word_of(q[0] * decay_of.from_start, q[1] * decay_of.from_start);
            wide_ref(pc.workspace).at[block + K_AT / 16u + number] = word_of(k[0] * decay_of.to_end, k[1] * decay_of.to_end);
        }
    }
    barrier();
}

// Products of keys with later keys, then of queries with keys up to their own. Skips tiles that hold none of these.
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

// Stores P in the workspace, and replaces products of keys by the transpose of A.
void weigh() {
    uint block = block_number() * (BLOCK_BYTES / 8u) + P_AT / 8u;
    for (uint n = gl_LocalInvocationIndex; n < CHUNK * (CHUNK / 4u); n += THREADS) {
        uint row = n / (CHUNK / 4u);
        uint four = n % (CHUNK / 4u);
        uint at = row * SCORE_FOURS + four;
        vec4 of_key = scores[at], of_query = scores[CHUNK * SCORE_FOURS + at];
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            uint column = four * 4u + c;
            of_key[c] = column > row ? chunk_tokens[column].beta * decay_between(column, row) * of_key[c] : 0.0;
            of_query[c] = column <= row ? decay_between(row, column) * of_query[c] : 0.0;
        }
        scores[at] = of_key;
        fours_ref(pc.workspace).at[block + n] = f16_of(of_query);
    }
    barrier();
}

// Forward substitution: subtracts solved value i from the values below it. A is zero for i's own four and those above.
#define SOLVE(i) \
    [[unroll]] for (uint four = (i) / 4u; four < CHUNK / 4u; ++four) { \
        x[n * (CHUNK / 4u) + four] -= scores[(i) * SCORE_FOURS + four] * x[n * (CHUNK / 4u) + (i) / 4u][(i) % 4u]; \
    }

// Solves columns of W and U by forward substitution.
void solve() {
    [[unroll]] for (uint n = 0u; n < SOLVED_EACH; ++n) {
        bool is_key = gl_LocalInvocationIndex + n * THREADS < KEY_DIM;
        [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
            ChunkToken token = chunk_tokens[i];
            float factor = is_key ? token.beta * token_decays[i].from_start : token.beta;
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
            uint at = block_number() * (BLOCK_BYTES / 2u) + W_AT / 2u + column;
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                pc.workspace.at[at + i * KEY_DIM] = float16_t(clamp(-x[n * (CHUNK / 4u) + i / 4u][i % 4u], -65504.0, 65504.0));
            }
        } else if (column < KEY_DIM + VALUE_DIM) {
            uint at = block_number() * (BLOCK_BYTES / 4u) + U_AT / 4u + column - KEY_DIM;
            [[unroll]] for (uint i = 0u; i < CHUNK; ++i) {
                float solved = x[n * (CHUNK / 4u) + i / 4u][i % 4u];
                floats_ref(pc.workspace).at[at + i * VALUE_DIM] = solved;
                top = max(top, abs(solved));
            }
        }
        // Bits of non-negative floats are ordered like the floats.
        uint bits = subgroupMax(floatBitsToUint(top));
        if (subgroupElect()) atomicMax(largest, bits);
    }
    barrier();
    if (gl_LocalInvocationIndex == 0u) {
        uint at = block_number() * (BLOCK_BYTES / 4u) + MAX_U_AT / 4u;
        floats_ref(pc.workspace).at[at] = uintBitsToFloat(largest);
    }
}

void main() UNIFORM_FLOW {
    load();
    load_tokens();
    stage();
    load_columns();
    multiply();
    weigh();
    solve();
    store_solved();
}
