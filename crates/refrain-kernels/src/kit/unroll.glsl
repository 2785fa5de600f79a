// UNROLL marks loops worth unrolling, unless the driver takes seconds to compile that.
#if UNROLLED
#define UNROLL [[unroll]]
#else
#define UNROLL [[dont_unroll]]
#endif
