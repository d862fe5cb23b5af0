// CuTe 1.3: the article's first kernel without its swizzle.
//
// New:        against 1: the atom of the shared layout is (8,(8,8)):(8,(1,64)) as it is, not under Swizzle<3,3,3>; all
//             else is 1's, its source included. So this is what the article's swizzle saves, and nothing more.
// Parameters: as 1.
// Expected:   ldmatrix meets no conflict in either form: eight rows of a chunk lie side by side, 128 bytes in a line. A
//             copy does: the eight chunks of a row are 128 bytes apart, so a warp's 512 bytes take 8 lines for 4. That
//             is 8.4 million lines of shared memory for 6.3 million at 2048, and a few per cent of time: no other
//             work overlaps the copies.
// Takes:      as 1.

#include <cute/tensor.hpp>

template <int, int, int>
using Unswizzled = cute::Swizzle<0, 3, 3>;
#define Swizzle Unswizzled
#define article_base article_unswizzled
#include "cute/1_article_base.cu"

extern "C" __global__ void __launch_bounds__(THREADS)
article_unswizzled(const Element* a, const Element* b, Element* c, int m, int n, int k);
