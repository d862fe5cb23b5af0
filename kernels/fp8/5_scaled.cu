// Level F5: a scale for every 128 elements of K.
//
// New:        A has a scale for each row and 128 of K, B for each 128 x 128: what 8 bits cannot span, they do. The
//             addition of F2 multiplies by both, an FFMA instead of an FADD, so that scaling costs loads alone: three
//             numbers a thread and step, fetched when the step's wgmma are issued and used when the next one's are.
//             A tile of 128 columns lies in one block of B.
// Parameters: BM = BN = BK = 128, STAGES = 6, GROUP = 8: F4's tile whose fresh sums are those of two steps.
// Expected:   F4's speed with this tile, less 1%: 6 LDG and 4 FMUL a pair of steps, which take 1024 cycles; some 1.5 KB
//             from L2 beside 64 KB. 1.00 of cublasLt's block-scaled mode or more.
// Takes:      as level F1; scales of A [ceil(k / 128), m] and of B [ceil(n / 128), ceil(k / 128)], both fp32, the
//             rows of the latter padded to a multiple of 4.

#include "common/tma.cuh"
#include "common/wgmma_e4m3.cuh"

using Element = e4m3;
using Result = fp16;

constexpr int BM = 128, BN = 128, BK = 128;  // the block's tile of C is BM x BN; it walks K in steps of BK
constexpr int STAGES = 6;
constexpr int GROUP = 8;            // rows of tiles that are walked together
constexpr int CONSUMERS = BM / 64;  // warpgroups, of 64 rows each; the producer follows them
constexpr int PIECE = 64;           // a warp stores 16 rows of C in pieces of 64 columns
constexpr int BUFFERS = 2;          // pieces of a warp that wait for the copy engine
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");
static_assert(128 * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "a multiprocessor's registers");

struct Shared {
    Element A[STAGES][BM * BK];
    Element B[STAGES][BN * BK];
    Result C[4 * CONSUMERS][BUFFERS][16 * PIECE];  // of each warp
    Barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(Shared) <= 227 * 1024, "a block's shared memory");

struct Tile {
    int row, col;  // counted in tiles
};

// The t-th tile of rows x cols: groups of GROUP rows, in a group column by column.
__device__ __forceinline__ Tile tile_at(int t, int rows, int cols) {
    const int group = t / (GROUP * cols), within = t % (GROUP * cols);
    const int height = min(GROUP, rows - group * GROUP);
    return {group * GROUP + within % height, within / height};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
scaled(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
       const __grid_constant__ TensorMap map_c, const float* scale_a, const float* scale_b, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   scale_a: [depth, m]   scale_b: [cols, pitch]   grid: any   block: THREADS
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const int depth = (k + BK - 1) / BK, pitch = (depth + 3) / 4 * 4;  // steps that have scales
    const int rounds = (depth + 1) / 2, steps = 2 * rounds;             // of two sets of fresh sums
    const int tiles = rows * cols, blocks = gridDim.x;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();

    int stage = 0, parity = 0;  // where in the ring, and how often round it
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * 128) {
            tma_prefetch(map_a);
            tma_prefetch(map_b);
            for (int t = blockIdx.x; t < tiles; t += blocks) {
                const Tile tile = tile_at(t, rows, cols);
                for (int p = 0; p < steps; ++p) {
                    barrier_wait(&shared.empty[stage], parity ^ 1);
                    barrier_expect(&shared.full[stage], sizeof(shared.A[0]) + sizeof(shared.B[0]));
                    tma_load(shared.A[stage], map_a, &shared.full[stage], p * BK, tile.row * BM);
                    tma_load(shared.B[stage], map_b, &shared.full[stage], p * BK, tile.col * BN);
                    if (++stage == STAGES) {
                        stage = 0, parity ^= 1;
                    }
                }
            }
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float sums[BN / 2] = {};
        float fresh[2][BN / 2] = {};                   // what the tensor cores add to
        float scales[2][3];                            // of each: of its two rows of A, and of B
        const float *upper_a, *lower_a, *of_b;         // where those of the tile begin whose wgmma run

        const auto begin = [&](Tile tile) {
            const int row = tile.row * BM + warp * 16 + lane / 4;  // those beyond the matrix are not stored
            upper_a = scale_a + min(row, m - 1), lower_a = scale_a + min(row + 8, m - 1);
            of_b = scale_b + static_cast<size_t>(tile.col) * pitch;
        };
        const auto fetch = [&](float(&s)[3], int step) {
            const bool real = step < depth;  // the step of zeros has no scales
            s[0] = real ? upper_a[static_cast<size_t>(step) * m] : 0;
            s[1] = real ? lower_a[static_cast<size_t>(step) * m] : 0;
            s[2] = real ? of_b[step] : 0;
        };
        const auto multiply = [&](float(&d)[BN / 2]) {
            const Descriptor a = describe(&shared.A[stage][warpgroup * 64 * BK]), b = describe(shared.B[stage]);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 32; ++s) {
                wgmma_e4m3<BN>(d, a + s * NEXT_K32, b + s * NEXT_K32, s > 0);
            }
            wgmma_commit();
        };
        const auto add = [&](const float(&from)[BN / 2], const float(&s)[3]) {
            const float upper = s[0] * s[2], lower = s[1] * s[2];
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                sums[i] += from[i] * (i % 4 < 2 ? upper : lower);
            }
        };
        const auto release = [&](int freed) {
            if (threadIdx.x % 128 == 0) {
                barrier_arrive(&shared.empty[freed]);
            }
        };
        // The next step's stage, once it is full; the one before.
        const auto advance = [&] {
            const int before = stage;
            if (++stage == STAGES) {
                stage = 0, parity ^= 1;
            }
            barrier_wait(&shared.full[stage], parity);
            return before;
        };
        const auto store = [&](Tile tile) {
            const int row = tile.row * BM + warp * 16, col = tile.col * BN;
#pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                Result* const staged = shared.C[warp][piece % BUFFERS];
                if (lane == 0) {
                    tma_store_wait_read<BUFFERS - 1>();
                }
                __syncwarp();
                // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
                const unsigned to = shared_address(staged) + lane % 16 * 128;
#pragma unroll
                for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
                    float* const d = &sums[piece * PIECE / 2 + chunk * 4];
                    stmatrix(to + ((chunk + lane / 16) ^ lane % 8) * 16, pack<Result>(d[0], d[1]),
                             pack<Result>(d[2], d[3]), pack<Result>(d[4], d[5]), pack<Result>(d[6], d[7]));
#pragma unroll
                    for (int i = 0; i < 8; ++i) {
                        d[i] = 0;  // for the next tile
                    }
                }
                shared_fence();
                __syncwarp();
                if (lane == 0) {
                    tma_store(map_c, staged, col + piece * PIECE, row);
                    tma_store_commit();
                }
            }
        };

        const int total = (tiles - blockIdx.x + blocks - 1) / blocks * rounds;  // of this block
        int t = blockIdx.x, p = 0;  // the tile whose sums these are, and how many of its rounds they hold
        begin(tile_at(t, rows, cols));
        barrier_wait(&shared.full[0], 0);
        fetch(scales[0], 0);
        multiply(fresh[0]);
        advance();
        fetch(scales[1], 1);
        multiply(fresh[1]);
        wgmma_arrived<1>(fresh[0]);
        release(0);
        add(fresh[0], scales[0]);
        for (int i = 1; i < total; ++i) {
            const bool ends = ++p == rounds;  // the tile; the wgmma that follow are the next one's
            if (ends) {
                begin(tile_at(t + blocks, rows, cols));
            }
            const int next = ends ? 0 : 2 * p;
            int before = advance();
            wgmma_arrived<0>(fresh[1]);
            release(before);
            fetch(scales[0], next);
            multiply(fresh[0]);
            add(fresh[1], scales[1]);
            before = advance();
            fetch(scales[1], next + 1);
            multiply(fresh[1]);
            if (ends) {
                store(tile_at(t, rows, cols));
                t += blocks, p = 0;
            }
            wgmma_arrived<1>(fresh[0]);
            release(before);
            add(fresh[0], scales[0]);
        }
        wgmma_arrived<0>(fresh[1]);
        add(fresh[1], scales[1]);
        store(tile_at(t, rows, cols));
        if (lane == 0) {
            tma_store_wait<0>();
        }
    }
}
