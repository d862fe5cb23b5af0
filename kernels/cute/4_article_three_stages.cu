// CuTe 4: three stages. The article's program.
//
// New:        against 3: two tiles are on their way while one is multiplied, and the wait is for all but the newest of
//             them. The tile of A is requested before a block's first instructions on the tensor cores, that of B after
//             them. Shared memory is cleared first.
// Parameters: as 3; 3 stages, 96 KB. (The article speaks of 48 and 72 KB for two and three stages; its tile makes 64
//             and 96.) COPY and CHUNKS name another copy instruction and layout for 4.3 and 4.4.
// Published:  1.16 of cuBLAS and 0.1158 ms (A100, n = 2048, caches flushed), 1.04 of the step before, though resident
//             blocks fall from 3 to 2.
// Expected:   the gain of our three stages over two, 1.06 at 2048. Guarded copies cost what NOTES found in Python: a
//             branch in the loop, about 2% against copies of zeros.
// Takes:      as 3.

#include <cute/tensor.hpp>

using namespace cute;

#ifndef COPY
#define COPY SM80_CP_ASYNC_CACHEALWAYS
#endif
#ifndef CHUNKS
#define CHUNKS Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>
#endif

using Element = bfloat16_t;
constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 3;
constexpr int GROUP = 8;  // the article's swizzle factor
constexpr int THREADS = 128;

using Atom = decltype(composition(Swizzle<3, 3, 3>{}, CHUNKS{}));
using TilesA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
using TilesB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));

// 16 rows of 8 threads, each of them 8 elements: 16 bytes.
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<COPY<uint128_t>, Element>{},
                                            Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<_32, _32, _16>>;
using FromShared = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

extern "C" __global__ void __launch_bounds__(THREADS)
article_three_stages(const Element* a, const Element* b, Element* c, int m, int n, int k) {
    // a: [m, k]   b: [n, k]   c: [n, m]   grid: (rows, columns) of tiles   block: THREADS
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Element* const shared = reinterpret_cast<Element*>(shared_bytes);
    int row = blockIdx.x, col = blockIdx.y;
    if (gridDim.x >= GROUP) {
        const int number = blockIdx.x + blockIdx.y * gridDim.x, groups = (gridDim.x + GROUP - 1) / GROUP;
        const int moved = number / GROUP % groups * GROUP + number % GROUP;
        if (moved < gridDim.x) {
            row = moved;
            col = number / GROUP / groups;
        }
    }

    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));  // (m, k)
    const Tensor B = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));  // (n, k)
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(_1{}, m));  // (m, n)
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BK>>{}, make_coord(row, _));          // (BM, BK, tiles)
    const Tensor gB = local_tile(B, Shape<Int<BN>, Int<BK>>{}, make_coord(col, _));          // (BN, BK, tiles)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));        // (BM, BN)
    const Tensor sA = make_tensor(make_smem_ptr(shared), TilesA{});                          // (BM, BK, STAGES)
    const Tensor sB = make_tensor(make_smem_ptr(shared + cosize_v<TilesA>), TilesB{});       // (BN, BK, STAGES)

    const auto from_global = FromGlobal{}.get_slice(threadIdx.x);
    const Tensor copyA = from_global.partition_S(gA);  // (COPY, ROWS, 1, tiles)
    const Tensor copyB = from_global.partition_S(gB);
    Tensor toA = from_global.partition_D(sA);  // (COPY, ROWS, 1, STAGES)
    Tensor toB = from_global.partition_D(sB);

    const auto mma = Mma{}.get_slice(threadIdx.x);
    Tensor rA = mma.partition_fragment_A(sA(_, _, 0));  // (MMA, 4, K_BLOCKS): 16 x 16 of A
    Tensor rB = mma.partition_fragment_B(sB(_, _, 0));  // (MMA, 8, K_BLOCKS): 8 x 16 of B
    Tensor sums = mma.partition_fragment_C(gC);         // (MMA, 4, 8): 16 x 8 of C
    const auto readA = make_tiled_copy_A(FromShared{}, Mma{}).get_slice(threadIdx.x);
    const auto readB = make_tiled_copy_B(FromShared{}, Mma{}).get_slice(threadIdx.x);
    const Tensor fromA = readA.partition_S(sA);  // (COPY, 4, K_BLOCKS, STAGES)
    const Tensor fromB = readB.partition_S(sB);
    Tensor intoA = readA.retile_D(rA);
    Tensor intoB = readB.retile_D(rB);
    constexpr int BLOCKS = size<2>(rA);
    clear(sums);

    const int tiles = size<3>(copyA);
    clear(toA);
    clear(toB);
    __syncthreads();
    int asked = 0;  // tiles of which copies were issued, or would be
    CUTE_UNROLL
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < tiles) {
            copy(FromGlobal{}, copyA(_, _, _, asked), toA(_, _, _, stage));
            copy(FromGlobal{}, copyB(_, _, _, asked), toB(_, _, _, stage));
        }
        ++asked;
        cp_async_fence();
    }
    int writing = STAGES - 1, reading = 0, next = 0;  // stages
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    copy(FromShared{}, fromA(_, _, 0, reading), intoA(_, _, 0));
    copy(FromShared{}, fromB(_, _, 0, reading), intoB(_, _, 0));
    for (int tile = 0; tile < tiles; ++tile) {
        CUTE_UNROLL
        for (int block = 0; block < BLOCKS; ++block) {
            if (block == BLOCKS - 1) {
                reading = next;
                cp_async_wait<STAGES - 2>();
                __syncthreads();
            }
            const int ahead = (block + 1) % BLOCKS;
            copy(FromShared{}, fromA(_, _, ahead, reading), intoA(_, _, ahead));
            copy(FromShared{}, fromB(_, _, ahead, reading), intoB(_, _, ahead));
            const bool more = block == 0 && tile + STAGES - 1 < tiles;
            if (more) {
                copy(FromGlobal{}, copyA(_, _, _, asked), toA(_, _, _, writing));
            }
            gemm(Mma{}, rA(_, _, block), rB(_, _, block), sums);
            if (more) {
                copy(FromGlobal{}, copyB(_, _, _, asked), toB(_, _, _, writing));
            }
            if (block == 0) {
                ++asked;
                cp_async_fence();
                writing = next;
                next = next + 1 == STAGES ? 0 : next + 1;
            }
        }
    }
    cp_async_wait<0>();
    __syncthreads();

    Tensor out = mma.partition_C(gC);  // (MMA, 4, 8)
    copy(sums, out);                   // rounded on the way
}
