// The matrices of all experts lie one after the other, EXPERT_ROWS rows apart; a repetition of the product meets
// those of some.
uint first_row(uint expert) { return min(expert, EXPERTS - 1u) * EXPERT_ROWS; }

uint expert_of(uint token, uint u) { return load_experts(pc.experts, token * USED + u); }

#ifdef SEGMENT
// The results of a token's experts are added up: their rows of x, weighted, are one long row, and so are
// their rows of weights, SEGMENT chunks each.
shared uint expert_rows[USED];
shared float expert_weights[USED];

Chunk load_row(Planes planes, uint row, uint number) {
    return load_chunk(planes, expert_rows[number / SEGMENT] + row, number % SEGMENT);
}

#ifdef SCORES
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
    // Some may still read those of the repetition before.
    barrier();
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) expert_rows[u] = first_row(expert_of(number, u));
    barrier();
    x_at = number * USED * X_STRIDE;
    y_at = number * Y_STRIDE;
    t_at = number;
}

// Behind the first loads of weights, before the workgroup meets to stage x.
void weigh_experts() {
    for (uint u = gl_LocalInvocationIndex; u < USED; u += ROWS * LANES) {
        uint expert = expert_of(t_at, u);
        expert_weights[u] = expert < EXPERTS ? weight_of(t_at, u, expert) : 0.0;
    }
}

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
