// CuTe 1.2: C through shared memory. The article's detour.
//
// New:        against 1: the sums are rounded into shared memory, where A and B were, in a layout of the same atom;
//             after a barrier they go out by a 16-byte tiled copy. C is row-major here, without which 16 bytes of a row
//             would not be contiguous.
// Parameters: as 1; the copy out has 16 rows of 8 threads with 8 elements each.
// Published:  slower than the direct store (A100, n = 2048; no figure).
// Expected:   faster at 2048. In 1 a warp's store of a fragment's column is 8 elements of 2 bytes in each of four
//             columns, 128 such stores a thread; here a thread has 16 wide ones, and one barrier more.
// Takes:      multiples of the tile.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int THREADS = 128;

using Atom =
    decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>{}));
using TileA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>>{}));
using TileB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>>{}));
using TileC = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BN>>{}));
static_assert(cosize_v<TileC> <= cosize_v<TileA> + cosize_v<TileB>, "C fits where A and B were");

// 16 rows of 8 threads, each of them 8 elements: 16 bytes.
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, Element>{},
                                            Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using ToGlobal = decltype(make_tiled_copy(Copy_Atom<AutoVectorizingCopyWithAssumedAlignment<128>, Element>{},
                                          Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<_32, _32, _16>>;
using FromShared = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

extern "C" __global__ void __launch_bounds__(THREADS)
article_epilogue(const Element* a, const Element* b, Element* c, int m, int n, int k) {
    // a: [m, k]   b: [n, k]   c: [m, n]   grid: (rows, columns) of tiles   block: THREADS
    __shared__ __align__(128) Element shared[cosize_v<TileA> + cosize_v<TileB>];
    const int row = blockIdx.x, col = blockIdx.y;

    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));  // (m, k)
    const Tensor B = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));  // (n, k)
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));  // (m, n)
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BK>>{}, make_coord(row, _));          // (BM, BK, tiles)
    const Tensor gB = local_tile(B, Shape<Int<BN>, Int<BK>>{}, make_coord(col, _));          // (BN, BK, tiles)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));        // (BM, BN)
    const Tensor sA = make_tensor(make_smem_ptr(shared), TileA{});                           // (BM, BK)
    const Tensor sB = make_tensor(make_smem_ptr(shared + cosize_v<TileA>), TileB{});         // (BN, BK)
    const Tensor sC = make_tensor(make_smem_ptr(shared), TileC{});                           // (BM, BN)

    const auto from_global = FromGlobal{}.get_slice(threadIdx.x);
    const Tensor copyA = from_global.partition_S(gA);  // (COPY, ROWS, 1, tiles)
    const Tensor copyB = from_global.partition_S(gB);
    Tensor toA = from_global.partition_D(sA);  // (COPY, ROWS, 1)
    Tensor toB = from_global.partition_D(sB);

    const auto mma = Mma{}.get_slice(threadIdx.x);
    Tensor rA = mma.partition_fragment_A(sA);    // (MMA, 4, K_BLOCKS): 16 x 16 of A
    Tensor rB = mma.partition_fragment_B(sB);    // (MMA, 8, K_BLOCKS): 8 x 16 of B
    Tensor sums = mma.partition_fragment_C(gC);  // (MMA, 4, 8): 16 x 8 of C
    const auto readA = make_tiled_copy_A(FromShared{}, Mma{}).get_slice(threadIdx.x);
    const auto readB = make_tiled_copy_B(FromShared{}, Mma{}).get_slice(threadIdx.x);
    const Tensor fromA = readA.partition_S(sA);  // (COPY, 4, K_BLOCKS)
    const Tensor fromB = readB.partition_S(sB);
    Tensor intoA = readA.retile_D(rA);
    Tensor intoB = readB.retile_D(rB);
    clear(sums);

    const int tiles = size<3>(copyA);
    for (int tile = 0; tile < tiles; ++tile) {
        copy(FromGlobal{}, copyA(_, _, _, tile), toA);
        copy(FromGlobal{}, copyB(_, _, _, tile), toB);
        cp_async_fence();
        cp_async_wait<0>();
        __syncthreads();
        copy(FromShared{}, fromA, intoA);
        copy(FromShared{}, fromB, intoB);
        gemm(Mma{}, rA, rB, sums);
        __syncthreads();
    }

    Tensor staged = mma.partition_C(sC);  // (MMA, 4, 8)
    copy(sums, staged);                   // rounded on the way
    __syncthreads();
    const auto to_global = ToGlobal{}.get_slice(threadIdx.x);
    const Tensor from = to_global.partition_S(sC);  // (COPY, 8, 2)
    Tensor out = to_global.partition_D(gC);
    copy(ToGlobal{}, from, out);
}
