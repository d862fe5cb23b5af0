// CuTe 0.2: tiles copied through shared memory, into it asynchronously. The article's program.
//
// New:        against 0.1: cp.async with SM80_CP_ASYNC_CACHEGLOBAL brings the tile, past L1 and the registers.
// Parameters: as 0.1.
// Published:  1.47 TB/s in part 1 of the article, 1.04 of 0.1 (A100 80 GB, 8192 x 8192, caches flushed).
// Expected:   a little faster, as published: all of a tile's loads are in flight at once without a register held.
// Takes:      multiples of the tile.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 64;
constexpr int THREADS = 32;

using Staged = Layout<Shape<Int<BM>, Int<BN>>, Stride<Int<BN>, _1>>;
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, Element>{},
                                            Layout<Shape<_4, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using ToGlobal = decltype(make_tiled_copy(Copy_Atom<AutoVectorizingCopyWithAssumedAlignment<128>, Element>{},
                                          Layout<Shape<_4, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

extern "C" __global__ void __launch_bounds__(THREADS)
copy_async(const Element* a, Element* c, int m, int n) {
    // a, c: [m, n]   grid: (rows, columns) of tiles   block: THREADS
    __shared__ __align__(128) Element shared[cosize_v<Staged>];
    const auto tile = make_coord(blockIdx.x, blockIdx.y);
    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, n), make_stride(n, _1{}));
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BN>>{}, tile);  // (BM, BN)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, tile);
    const Tensor sA = make_tensor(make_smem_ptr(shared), Staged{});

    const auto from_global = FromGlobal{}.get_slice(threadIdx.x);
    const Tensor from = from_global.partition_S(gA);  // (8, ROWS, 1)
    Tensor into = from_global.partition_D(sA);
    copy(FromGlobal{}, from, into);
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
    const auto to_global = ToGlobal{}.get_slice(threadIdx.x);
    const Tensor held = to_global.partition_S(sA);
    Tensor to = to_global.partition_D(gC);
    copy(ToGlobal{}, held, to);
}
