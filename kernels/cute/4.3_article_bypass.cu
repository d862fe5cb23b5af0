// CuTe 4.3: the article's three stages with copies that bypass L1, as cuBLAS's do on its GPU.
//
// New:        against 4: SM80_CP_ASYNC_CACHEGLOBAL instead of SM80_CP_ASYNC_CACHEALWAYS, so LDGSTS.E.BYPASS in machine
//             code; all else is 4's, its source included.
// Parameters: as 4.
// Published:  slower, since the kernel relies on hits in L1 (A100; no figure).
// Expected:   equal within 1% here. A hit in L1 needs a second resident block that reads the same tile at nearly the
//             same time, and two blocks of 96 KB leave 64 KB of L1 on an H200; on an A100, with one resident block of
//             96 KB, there would be no second block to share with.
// Takes:      as 4.

#define COPY SM80_CP_ASYNC_CACHEGLOBAL
#define article_three_stages article_bypass
#include "cute/4_article_three_stages.cu"

extern "C" __global__ void __launch_bounds__(THREADS)
article_bypass(const Element* a, const Element* b, Element* c, int m, int n, int k);
