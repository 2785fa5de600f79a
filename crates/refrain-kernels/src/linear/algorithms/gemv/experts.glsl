// The matrices of all experts lie one after the other, EXPERT_ROWS rows apart; a repetition of the product meets
// those of some.
uint first_row(uint expert) { return min(expert, EXPERTS - 1u) * EXPERT_ROWS; }

#ifdef KEYS
// A token's experts are those of its largest scores, of equal ones the first; the first subgroup finds them.
shared uint chosen[USED];
shared float chosen_scores[USED];

// The first `count` of the token's experts.
void choose(uint token, uint count) {
    // Some may still read those of another.
    barrier();
    if (gl_SubgroupID == 0u) {
        uint own = gl_SubgroupInvocationID;
        uint keys[KEYS];
        uint largest = 0u;
        [[unroll]] for (uint i = 0u; i < KEYS; ++i) {
            uint expert = i * FULL_SUBGROUPS + own;
            // No number has the key 0.
            keys[i] = 0u;
            if (expert < EXPERTS) keys[i] = order_key(load_experts(pc.experts, token * SCORES_STRIDE + expert));
            largest = max(largest, keys[i]);
        }
        // Short, for it is fetched to be run once.
        [[dont_unroll]] for (uint u = 0u; u < count; ++u) {
            uint most = subgroupMax(largest);
            uint first = 0u;
            [[unroll]] for (uint i = KEYS; i-- > 0u;) first = keys[i] == most ? i : first;
            uint expert = largest == most ? first * FULL_SUBGROUPS + own : ~0u;
            // As a rule one invocation has it.
            if (subgroupBallotBitCount(subgroupBallot(largest == most)) > 1u) {
                if (subgroupMin(expert) != expert) expert = ~0u;
            }
            if (expert != ~0u) {
                chosen[u] = expert;
                chosen_scores[u] = float_of_key(most);
                largest = 0u;
                [[unroll]] for (uint i = 0u; i < KEYS; ++i) {
                    if (i == first) keys[i] = 0u;
                    largest = max(largest, keys[i]);
                }
            }
        }
    }
    barrier();
}

uint expert_of(uint token, uint u) { return chosen[u]; }
#else
void choose(uint token, uint count) {}

uint expert_of(uint token, uint u) { return load_experts(pc.experts, token * USED + u); }
#endif

#ifdef SEGMENT
// The results of a token's experts are added up: their rows of x, weighted, are one long row, and so are
// their rows of weights, SEGMENT chunks each.
shared uint expert_rows[USED];
shared float expert_weights[USED];

Chunk load_row(Planes planes, uint row, uint number) {
    return load_chunk(planes, expert_rows[number / SEGMENT] + row, number % SEGMENT);
}

#ifdef CHOSEN_WEIGHTS
// Softmax over the scores that were chosen.
float weight_of(uint token, uint u, uint expert) {
    float total = 0.0;
    for (uint other = 0u; other < USED; ++other) total += exp(chosen_scores[other] - chosen_scores[u]);
    return 1.0 / total;
}
#elif defined SCORES
float score_of(uint token, uint expert) {
    return load_routing(pc.routing, token * ROUTING_STRIDE + min(expert, EXPERTS - 1u));
}

// Softmax over the scores of the experts that are used.
float weight_of(uint token, uint u, uint expert) {
    float own = score_of(token, expert);
    float total = 0.0;
    for (uint other = 0u; other < USED; ++other) {
        total += exp(score_of(token, expert_of(token, other)) - own);
    }
    return 1.0 / total;
}
#else
float weight_of(uint token, uint u, uint expert) { return load_routing(pc.routing, token * ROUTING_STRIDE + u); }
#endif

void enter_repetition(uint number) {
    choose(number, USED);
    // Some may still read those of the repetition before.
    barrier();
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) {
        uint expert = expert_of(number, u);
        expert_rows[u] = first_row(expert);
        expert_weights[u] = expert < EXPERTS ? weight_of(number, u, expert) : 0.0;
    }
    barrier();
    x_at = number * USED * X_STRIDE;
    y_at = number * Y_STRIDE;
    t_at = number;
}

float expert_weight(uint k) { return expert_weights[min(k / (SEGMENT * CHUNK), USED - 1u)]; }

float sum_of_expert(float sum) { return sum; }
#else
uint expert_row;
bool is_there;

Chunk load_row(Planes planes, uint row, uint number) { return load_chunk(planes, expert_row + row, number); }

void enter_repetition(uint number) {
    choose(number / USED, number % USED + 1u);
    uint expert = expert_of(number / USED, number % USED);
    expert_row = first_row(expert);
    is_there = expert < EXPERTS;
    x_at = number / USED * X_STRIDE;
    y_at = number * Y_STRIDE;
    t_at = number;
}

float sum_of_expert(float sum) { return is_there ? sum : 0.0; }
#endif
