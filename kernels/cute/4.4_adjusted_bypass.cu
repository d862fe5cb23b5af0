// CuTe 4.4: copies that bypass L1, and the layout adjusted to them.
//
// New:        against 4.3: the layout's atom is (8,64):(64,1) under Swizzle<3,3,3>, so that the 128 bytes that eight
//             threads copy from one row of A or B stay one line of shared memory.
// Parameters: as 4.
// Published:  nothing; the article says that 4.3 is slower without a layout adjustment.
// Expected:   as fast as 4 or faster. A first run of 4.3 took 2.4 times as long as 4 at 2048, which hits in L1 cannot
//             explain: the copies' lines are scattered over eight lines of shared memory each.
// Takes:      as 4.

#define COPY SM80_CP_ASYNC_CACHEGLOBAL
#define CHUNKS Layout<Shape<_8, _64>, Stride<_64, _1>>
#define article_three_stages adjusted_bypass
#include "cute/4_article_three_stages.cu"

extern "C" __global__ void __launch_bounds__(THREADS)
adjusted_bypass(const Element* a, const Element* b, Element* c, int m, int n, int k);
