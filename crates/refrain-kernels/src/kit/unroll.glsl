// Loops that are worth unrolling, except where compilers take seconds to do it.
#if UNROLLED
#define UNROLL [[unroll]]
#else
#define UNROLL [[dont_unroll]]
#endif
