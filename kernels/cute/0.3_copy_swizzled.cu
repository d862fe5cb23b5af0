// CuTe 0.3: tiles copied asynchronously through swizzled shared memory. The article's program.
//
// New:        against 0.2: the layout of the GEMM's tiles, (8,(8,8)):(8,(1,64)) under Swizzle<3,3,3>, 64 threads in 8
//             rows of 8, and SM80_CP_ASYNC_CACHEALWAYS.
// Parameters: as 0.2 else.
// Published:  1.48 TB/s on tiles of 128 x 64 (A100 80 GB, 8192 x 8192, caches flushed): 0.73 of its 2.04 TB/s.
// Expected:   as 0.2 within 2%: DRAM is the limit, and neither layout has bank conflicts (a row of 0.2's is 128 bytes).
// Takes:      multiples of the tile.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 64;
constexpr int THREADS = 64;

using Atom =
    decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>{}));
using Staged = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BN>>{}));
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, Element>{},
                                            Layout<Shape<_8, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using ToGlobal = decltype(make_tiled_copy(Copy_Atom<AutoVectorizingCopyWithAssumedAlignment<128>, Element>{},
                                          Layout<Shape<_8, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

extern "C" __global__ void __launch_bounds__(THREADS)
copy_swizzled(const Element* a, Element* c, int m, int n) {
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
