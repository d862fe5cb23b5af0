// CuTe 4, the other epilogue: C leaves through shared memory.
//
// New:        against step 4: the rounded sums are written to shared memory, in the same swizzle as the tiles, and go
//             out from there in whole rows, 16 bytes a thread, 256 bytes a row. Step 4 stores two elements at a time,
//             16 bytes of a row by four threads.
// Parameters: as step 4; C's tile takes the place of the first stages.
// Published:  slower than the direct stores (A100, n = 2048; no figure).
// Expected:   a quarter of the store instructions and whole sectors, against two barriers and a trip through shared
//             memory in which the tensor cores rest; slower where the L2 joins the halves of sectors anyway.
// Takes:      as before.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 128, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 3;
constexpr int GROUP = 8;  // rows of tiles that are walked together
constexpr int THREADS = 128;

// Eight rows of 64 elements, swizzled: 3 bits of the row into the 3 bits above the 8 elements of a chunk.
using Atom = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
using TilesA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
using TilesB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));

// 16 rows of 8 threads, each of them 8 elements: 16 bytes.
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>, Element>{},
                                            Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
// 2 x 2 warps; 32 columns at a time, so that one ldmatrix.x4 brings a warp two instructions' share of B.
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<_32, _32, _16>>;
using FromShared = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

// The block's tile of C on its way out: written two elements at a time, read in rows of 16 threads, 8 elements each.
using TileC = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BN>>{}));
using IntoShared = Copy_Atom<UniversalCopy<uint32_t>, Element>;
using ToGlobal = decltype(make_tiled_copy(Copy_Atom<UniversalCopy<uint128_t>, Element>{},
                                          Layout<Shape<_8, _16>, Stride<_16, _1>>{}, Layout<Shape<_1, _8>>{}));
static_assert(cosize_v<TileC> <= cosize_v<TilesA>, "C fits where A was");

struct Shared {
    alignas(128) Element a[cosize_v<TilesA>];
    alignas(128) Element b[cosize_v<TilesB>];
};

extern "C" __global__ void __launch_bounds__(THREADS)
shared_epilogue(const Element* a, const Element* b, Element* c, int m, int n, int k) {
    // a: [m, k]   b: [n, k]   c: [m, n]   grid: tiles   block: THREADS
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int group = blockIdx.x / (GROUP * cols), within = blockIdx.x % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    const int row = group * GROUP + within % height, col = within / height;

    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));  // (m, k)
    const Tensor B = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));  // (n, k)
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));  // (m, n)
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BK>>{}, make_coord(row, _));          // (BM, BK, tiles)
    const Tensor gB = local_tile(B, Shape<Int<BN>, Int<BK>>{}, make_coord(col, _));          // (BN, BK, tiles)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));        // (BM, BN)
    const Tensor sA = make_tensor(make_smem_ptr(shared.a), TilesA{});                        // (BM, BK, STAGES)
    const Tensor sB = make_tensor(make_smem_ptr(shared.b), TilesB{});                        // (BN, BK, STAGES)

    // What this thread copies: COPY is the 8 elements of a chunk, ROWS the chunks, one every 16 rows.
    const auto from_global = FromGlobal{}.get_slice(threadIdx.x);
    const Tensor copyA = from_global.partition_S(gA);  // (COPY, ROWS, 1, tiles)
    const Tensor copyB = from_global.partition_S(gB);
    Tensor toA = from_global.partition_D(sA);  // (COPY, ROWS, 1, STAGES)
    Tensor toB = from_global.partition_D(sB);
    const Tensor place = from_global.partition_S(make_identity_tensor(Shape<Int<BM>, Int<BK>>{}));  // (row, column)
    Tensor insideA = make_tensor<bool>(make_shape(size<1>(toA), _1{}));
    Tensor insideB = make_tensor<bool>(make_shape(size<1>(toB), _1{}));
    const auto load = [&](int tile, int stage) {
        const bool inside = tile * BK + get<1>(place(0)) < k;
        CUTE_UNROLL
        for (int i = 0; i < size<1>(toA); ++i) {
            insideA(i, 0) = inside && row * BM + get<0>(place(0, i, 0)) < m;
            insideB(i, 0) = inside && col * BN + get<0>(place(0, i, 0)) < n;
        }
        copy_if(FromGlobal{}, insideA, copyA(_, _, _, tile), toA(_, _, _, stage));
        copy_if(FromGlobal{}, insideB, copyB(_, _, _, tile), toB(_, _, _, stage));
        cp_async_fence();
    };

    // What this thread multiplies: registers as the instruction wants them, and the ldmatrix that fills them.
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
    const auto read = [&](int block, int stage) {
        copy(FromShared{}, fromA(_, _, block, stage), intoA(_, _, block));
        copy(FromShared{}, fromB(_, _, block, stage), intoB(_, _, block));
    };
    constexpr int BLOCKS = size<2>(rA);
    clear(sums);

    const int tiles = size<3>(copyA);
    CUTE_UNROLL
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        load(tile, tile);
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    read(0, 0);
    int reading = 0, writing = STAGES - 1;  // stages
    for (int tile = 0; tile < tiles; ++tile) {
        CUTE_UNROLL
        for (int block = 0; block < BLOCKS; ++block) {
            if (block == BLOCKS - 1) {  // the next tile must be there, and everybody be done with this one
                reading = reading + 1 < STAGES ? reading + 1 : 0;
                cp_async_wait<STAGES - 2>();
                __syncthreads();
            }
            read((block + 1) % BLOCKS, reading);
            if (block == 0) {
                load(tile + STAGES - 1, writing);  // beyond the last tile: zeros
                writing = writing + 1 < STAGES ? writing + 1 : 0;
            }
            gemm(Mma{}, rA(_, _, block), rB(_, _, block), sums);
        }
    }

    // Each thread rounds its sums and puts them where A was; then whole rows go out.
    Tensor rounded = make_tensor_like<Element>(sums);
    CUTE_UNROLL
    for (int i = 0; i < size(sums); ++i) {
        rounded(i) = Element(sums(i));
    }
    cp_async_wait<0>();
    __syncthreads();  // nobody reads a tile any more, and no copy is on its way
    const Tensor sC = make_tensor(make_smem_ptr(shared.a), TileC{});  // (BM, BN)
    const auto write = make_tiled_copy_C(IntoShared{}, Mma{}).get_slice(threadIdx.x);
    Tensor intoC = write.partition_D(sC);
    copy(IntoShared{}, write.retile_S(rounded), intoC);
    __syncthreads();

    const auto to_global = ToGlobal{}.get_slice(threadIdx.x);
    const Tensor fromC = to_global.partition_S(sC);  // (COPY, 16, 1)
    Tensor out = to_global.partition_D(gC);
    const Tensor spot = to_global.partition_S(make_identity_tensor(Shape<Int<BM>, Int<BN>>{}));  // (row, column)
    Tensor chunks = make_fragment_like(fromC);
    copy(ToGlobal{}, fromC, chunks);
    CUTE_UNROLL
    for (int i = 0; i < size<1>(out); ++i) {
        if (row * BM + get<0>(spot(0, i, 0)) < m && col * BN + get<1>(spot(0, i, 0)) < n) {
            copy(ToGlobal{}, chunks(_, i, _), out(_, i, _));
        }
    }
}
