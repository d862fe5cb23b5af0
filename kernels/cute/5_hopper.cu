// CuTe 5, beyond the article: the same abstraction on what a Hopper GPU has, wgmma and TMA.
//
// New:        everything below the layouts. The atoms of steps 1 to 4 are an Ampere GPU's: cp.async, ldmatrix,
//             mma.sync. Here one thread loads whole tiles by TMA, two warpgroups multiply by wgmma straight from
//             shared memory, and C goes out by TMA. The shape is that of level H9 of the raw ladder (kernels/hopper),
//             written in CuTe: a ring of stages between a producer and two consumers, blocks that stay on the GPU, two
//             of them sharing each tile of B, a finished tile stored piece by piece behind the next tile's first
//             steps.
// Parameters: 128 x 256 x 64 a block, wgmma m64n256k16, 4 stages (192 KB), groups of 8 rows, clusters of 2; registers
//             40 for the producer, 232 for the consumers.
// Published:  none.
// Expected:   what H9 reaches, 0.98 of cuBLAS at 8192: CuTe computes descriptors and addresses at compile time, or
//             where the code would have to compute them anyway.
// Takes:      any m; n and k that are multiples of 8.

#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_conversion.h>

using namespace cute;
using cutlass::arch::ClusterBarrier;
using cutlass::arch::ClusterTransactionBarrier;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 256, BK = 64;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 4;
constexpr int GROUP = 8;             // rows of tiles that are walked together
constexpr int CLUSTER = 2;           // blocks, one above the other, that share tiles of B
constexpr int SHARE = BN / CLUSTER;  // rows of the tile of B that a block loads for all
constexpr int CONSUMERS = BM / 64;   // warpgroups, of 64 rows each; the producer follows them
constexpr int PIECES = BN / 64;      // C goes out in pieces of 64 columns
constexpr int BUFFERS = 2;           // pieces that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

// Eight rows of 64 elements under the 128-byte swizzle: the image that TMA writes and wgmma reads.
using Atom = GMMA::Layout_K_SW128_Atom<Element>;
using TilesA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
using TilesB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
using TilesC = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, _64, Int<BUFFERS>>{}));

// Two warpgroups, one below the other; and the same for a piece of C, whose registers lie alike.
template <class Instruction>
using Below = TiledMMA<MMA_Atom<Instruction>, Layout<Shape<Int<CONSUMERS>, _1, _1>>>;
using Mma = Below<SM90_64x256x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>>;
using PieceMma = Below<SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>>;
using IntoShared = Copy_Atom<SM90_U32x4_STSM_N, Element>;

struct Shared {
    alignas(1024) Element a[STAGES][BM * BK];
    alignas(1024) Element b[STAGES][BN * BK];
    alignas(1024) Element c[cosize_v<TilesC>];
    ClusterTransactionBarrier full[STAGES];
    ClusterBarrier empty[STAGES];
};
constexpr unsigned STAGE_BYTES = (BM + BN) * BK * sizeof(Element);
constexpr auto NO_HINT = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);

// The t-th tile of rows x cols, counted in tiles of a cluster: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ int2 tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};  // (row, column)
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
hopper(const __grid_constant__ TmaDescriptor map_a, const __grid_constant__ TmaDescriptor map_b,
       const __grid_constant__ TmaDescriptor map_c, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of clusters   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const Tensor sA = make_tensor(make_smem_ptr(shared.a[0]), TilesA{});  // (BM, BK, STAGES)
    const Tensor sB = make_tensor(make_smem_ptr(shared.b[0]), TilesB{});  // (BN, BK, STAGES)
    const Tensor sC = make_tensor(make_smem_ptr(shared.c), TilesC{});  // (BM, 64, BUFFERS)

    const int rows = (m + CLUSTER * BM - 1) / (CLUSTER * BM), cols = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
    const int rank = block_rank_in_cluster();
    const int warpgroup = cutlass::canonical_warp_group_idx();  // threadIdx.x / 128, known to be the same in all lanes
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            shared.full[s].init(1);
            shared.empty[s].init(CLUSTER * CONSUMERS);
        }
        cutlass::arch::fence_barrier_init();
    }
    cluster_sync();  // nobody's engine writes here before the barriers are ready

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        cutlass::arch::warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
                const int2 tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    shared.empty[stage].wait(parity ^ 1);
                    shared.full[stage].arrive_and_expect_tx(STAGE_BYTES);
                    auto* const full = reinterpret_cast<uint64_t*>(&shared.full[stage]);
                    SM90_TMA_LOAD_2D::copy(&map_a, full, NO_HINT, shared.a[stage], p * BK,
                                           (tile.x * CLUSTER + rank) * BM);
                    SM90_TMA_LOAD_MULTICAST_2D::copy(&map_b, full, (1 << CLUSTER) - 1, NO_HINT,
                                                     &shared.b[stage][rank * SHARE * BK], p * BK,
                                                     tile.y * BN + rank * SHARE);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        cutlass::arch::warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        Mma mma;
        const auto part = mma.get_slice(warpgroup * 128);
        const Tensor rA = part.make_fragment_A(part.partition_A(sA));  // descriptors: (1, 1, BK / 16, STAGES)
        const Tensor rB = part.make_fragment_B(part.partition_B(sB));
        Tensor sums = partition_fragment_C(mma, Shape<Int<BM>, Int<BN>>{});  // ((2, 2, BN / 8), 1, 1)
        Tensor kept = make_tensor<uint32_t>(Shape<Shape<_1, _2, _8>, _1, _1, Int<PIECES>>{});  // the last tile, rounded
        const auto write = make_tiled_copy_C(IntoShared{}, PieceMma{}).get_slice(threadIdx.x);
        Tensor intoC = write.partition_D(as_position_independent_swizzle_tensor(sC));  // (COPY, 1, 4, BUFFERS)
        int row = 0, col = 0;  // where this warp's part of the kept tile begins in C
        int before = 0;        // the stage of the step before
        clear(sums);

        const auto release = [&] {
            if (threadIdx.x % 128 < CLUSTER) {
                shared.empty[before].arrive(threadIdx.x % 128);
            }
        };
        const auto multiply = [&](int p) {
            shared.full[stage].wait(parity);
            mma.accumulate_ = p ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero;
            warpgroup_arrive();
            CUTE_UNROLL
            for (int s = 0; s < size<2>(rA); ++s) {
                gemm(mma, rA(_, _, s, stage), rB(_, _, s, stage), sums);
                mma.accumulate_ = GMMA::ScaleOut::One;
            }
            warpgroup_commit_batch();
            warpgroup_wait<1>();
            if (p > 0) {
                release();
            }
            before = stage;
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
        };
        const auto store = [&](int piece) {
            const int buffer = piece % BUFFERS;
            if (lane == 0) {
                tma_store_wait<BUFFERS - 1>();
            }
            __syncwarp();
            const Tensor from = recast<Element>(kept(_, _, _, piece));  // ((2, 2, 8), 1, 1)
            copy(IntoShared{}, write.retile_S(from), intoC(_, _, _, buffer));
            tma_store_fence();
            __syncwarp();
            if (lane == 0) {
                SM90_TMA_STORE_2D::copy(&map_c, &sC(warp * 16, 0, buffer), col + piece * 64, row);
                tma_store_arrive();
            }
        };

        bool first = true;
        for (int t = blockIdx.x / CLUSTER; t < rows * cols; t += gridDim.x / CLUSTER) {
            CUTE_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                if (piece < steps) {
                    multiply(piece);
                }
                if (!first) {
                    store(piece);
                }
            }
            // The divisions in here are done while the tensor cores work, not between two tiles.
            const int2 tile = tile_at(t, rows, cols);
            row = (tile.x * CLUSTER + rank) * BM + warp * 16, col = tile.y * BN;
            for (int p = PIECES; p < steps; ++p) {
                multiply(p);
            }
            warpgroup_wait<0>();
            warpgroup_fence_operand(sums);
            release();

            CUTE_UNROLL
            for (int i = 0; i < size(kept); ++i) {
                const cutlass::Array<float, 2> pair{sums(2 * i), sums(2 * i + 1)};
                const auto both = cutlass::NumericArrayConverter<Element, float, 2>{}(pair);
                kept(i) = reinterpret_cast<const uint32_t&>(both);
            }
            first = false;
        }
        if (!first) {  // a cluster without a tile has nothing to store
            CUTE_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                store(piece);
            }
        }
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
    cluster_sync();  // nobody leaves while a neighbour may still write to it
}
