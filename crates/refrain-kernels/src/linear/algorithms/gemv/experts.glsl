// The matrices of all experts are stacked, EXPERT_ROWS rows apart. Each repetition of the product uses some of them.
uint first_row(uint expert) { return min(expert, EXPERTS - 1u) * EXPERT_ROWS; }

uint expert_of(uint token, uint u) { return load_experts(pc.experts, token * USED + u); }

#ifdef SEGMENT
// The results of a token's experts are added up. Their weighted rows of x form one long row, and so do their rows of
// weights, SEGMENT chunks each.
shared uint expert_rows[USED];
shared float expert_weights[USED];

Chunk load_row(Planes planes, uint row, uint number) {
    return load_chunk(planes, expert_rows[number / SEGMENT] + row, number % SEGMENT);
}

void enter_repetition(uint number) {
    // Some invocations may still read the values of the previous repetition.
    barrier();
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) expert_rows[u] = first_row(expert_of(number, u));
    barrier();
    x_at = number * USED * X_STRIDE;
    y_at = number * Y_STRIDE;
    t_at = number;
}

// weigh_experts runs after the first loads of weights are issued, before the barrier that stages x.
#ifdef SCORES
// Softmax over the scores of the token's experts.
shared float expert_scores[USED];

void weigh_experts() {
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) {
        uint expert = min(expert_of(t_at, u), EXPERTS - 1u);
        expert_scores[u] = load_routing(pc.routing, t_at * ROUTING_STRIDE + expert);
    }
    barrier();
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) {
        float total = 0.0;
        [[dont_unroll]] for (uint other = 0u; other < USED; ++other) {
            total += exp(expert_scores[other] - expert_scores[u]);
        }
        expert_weights[u] = expert_of(t_at, u) < EXPERTS ? 1.0 / total : 0.0;
    }
}
#else
void weigh_experts() {
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) {
        float weight = load_routing(pc.routing, t_at * ROUTING_STRIDE + u);
        expert_weights[u] = expert_of(t_at, u) < EXPERTS ? weight : 0.0;
    }
}
#endif

float expert_weight(uint k) { return expert_weights[min(k / (SEGMENT * CHUNK), USED - 1u)]; }

float sum_of_expert(float sum) { return sum; }
#else
uint expert_row;
bool is_there;

Chunk load_row(Planes planes, uint row, uint number) { return load_chunk(planes, expert_row + row, number); }

void enter_repetition(uint number) {
    uint expert = expert_of(number / USED, number % USED);
    expert_row = first_row(expert);
    is_there = expert < EXPERTS;
    x_at = number / USED * X_STRIDE;
    y_at = number * Y_STRIDE;
    t_at = number;
}

float sum_of_expert(float sum) { return is_there ? sum : 0.0; }
#endif
