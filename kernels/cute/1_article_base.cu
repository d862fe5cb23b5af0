// CuTe 1: cp.async into swizzled shared memory, ldmatrix, mma.sync; load, wait, compute. The article's program.
//
// New:        the first GEMM of the article. A block copies a tile of A and of B with 16-byte cp.async through L1,
//             waits for them, reads all fragments of the tile by ldmatrix, and multiplies.
// Parameters: 128 x 128 x 64 a block, 128 threads, 2 x 2 warps, mma.sync m16n8k16, ldmatrix.x4, cp.async with
//             SM80_CP_ASYNC_CACHEALWAYS (LDGSTS without .BYPASS), static shared memory of 32 KB. The layout's atom is
//             (8,(8,8)):(8,(1,64)) under Swizzle<3,3,3>: eight rows of a 16-byte chunk lie side by side, and the
//             chunk's number is XORed into the row's. Grid: x over rows, y over columns of C. C is column-major, as in
//             the article's repository, and stored straight from the sums, one element at a time. (The repository gives
//             its columns the stride n, which is m for its squares.)
// Published:  1.01 of cuBLAS (A100, n = 2048, caches flushed), 1.02 in the summary.
// Expected:   a block computes or waits for memory, never both; all fragments of a tile are 128 registers beside 128
//             sums, so the compiler reads them in parts. As the project's form (1.1) within 5%: at one stage, waiting
//             dominates whatever the copies do on their way.
// Takes:      multiples of the tile. C is row-major if A and B are exchanged: B A^T is C transposed.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int THREADS = 128;

using Atom =
    decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>{}));
using TileA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>>{}));
using TileB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>>{}));

// 16 rows of 8 threads, each of them 8 elements: 16 bytes.
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, Element>{},
                                            Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<_32, _32, _16>>;
using FromShared = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

extern "C" __global__ void __launch_bounds__(THREADS)
article_base(const Element* a, const Element* b, Element* c, int m, int n, int k) {
    // a: [m, k]   b: [n, k]   c: [n, m]   grid: (rows, columns) of tiles   block: THREADS
    __shared__ __align__(128) Element shared_a[cosize_v<TileA>];
    __shared__ __align__(128) Element shared_b[cosize_v<TileB>];
    const int row = blockIdx.x, col = blockIdx.y;

    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));  // (m, k)
    const Tensor B = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));  // (n, k)
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(_1{}, m));  // (m, n)
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BK>>{}, make_coord(row, _));          // (BM, BK, tiles)
    const Tensor gB = local_tile(B, Shape<Int<BN>, Int<BK>>{}, make_coord(col, _));          // (BN, BK, tiles)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));        // (BM, BN)
    const Tensor sA = make_tensor(make_smem_ptr(shared_a), TileA{});                         // (BM, BK)
    const Tensor sB = make_tensor(make_smem_ptr(shared_b), TileB{});                         // (BN, BK)

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

    Tensor out = mma.partition_C(gC);  // (MMA, 4, 8)
    copy(sums, out);                   // rounded on the way
}
