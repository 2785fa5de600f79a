layout(constant_id = 5) const uint VECTORS = 1; // tokens
layout(constant_id = 6) const uint LOADS = 2;   // chunks of a row that an invocation has in flight
layout(constant_id = 7) const uint EACH = 1;    // rows of weights per row of invocations
layout(constant_id = 9) const uint TILE = 32;   // chunks of x in shared memory
