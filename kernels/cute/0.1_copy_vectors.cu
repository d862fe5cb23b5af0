// CuTe 0.1: tiles copied through shared memory by vector instructions. The article's program.
//
// New:        against 0: a tile passes through shared memory, by way of registers: 16-byte loads and stores into it, a
//             barrier, and out again.
// Parameters: tiles of 128 x 64 elements; 32 threads, 4 rows of 8 with 8 elements each; shared memory row-major, 16 KB.
//             Grid: x over rows, y over columns.
// Published:  1.42 TB/s in part 1 of the article (A100 80 GB, 8192 x 8192, caches flushed).
// Expected:   slower than 0: 32 threads a block and 14 blocks a multiprocessor, each with all 32 loads of its tile
//             ahead of the barrier; a quarter of an SM's threads.
// Takes:      multiples of the tile.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 64;
constexpr int THREADS = 32;

using Staged = Layout<Shape<Int<BM>, Int<BN>>, Stride<Int<BN>, _1>>;
using Spread = decltype(make_tiled_copy(Copy_Atom<AutoVectorizingCopyWithAssumedAlignment<128>, Element>{},
                                        Layout<Shape<_4, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

extern "C" __global__ void __launch_bounds__(THREADS)
copy_vectors(const Element* a, Element* c, int m, int n) {
    // a, c: [m, n]   grid: (rows, columns) of tiles   block: THREADS
    __shared__ __align__(128) Element shared[cosize_v<Staged>];
    const auto tile = make_coord(blockIdx.x, blockIdx.y);
    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, n), make_stride(n, _1{}));
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BN>>{}, tile);  // (BM, BN)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, tile);
    const Tensor sA = make_tensor(make_smem_ptr(shared), Staged{});

    const auto spread = Spread{}.get_slice(threadIdx.x);
    const Tensor from = spread.partition_S(gA);  // (8, ROWS, 1)
    Tensor into = spread.partition_D(sA);
    copy(Spread{}, from, into);
    __syncthreads();
    const Tensor held = spread.partition_S(sA);
    Tensor to = spread.partition_D(gC);
    copy(Spread{}, held, to);
}
