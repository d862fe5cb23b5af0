// Level R17: the first wave of the bound decides whether the rest is computed.
//
// New:        no glance. The bound's first launch takes a tile per SM, spread over C. If the moduli that these tiles
//             need make DGEMM faster than residues, by the model of `decide`, the launch for the other tiles returns at
//             once and all of C goes to double. Tiles are compared with gauges in shared memory, as in level R11.
// Parameters: as level R14.
// Expected:   at 4096 a bound of 40 us instead of 131 where all of C goes to double, and no glance, 38 us, on any input.
//             NOTES.md has the count.
// Takes:      as level R10.

#include "crt/14_certified_shared.cu"

// Gauges of a tile's rows and columns; each consumer has a set of its own, after the ring.
struct TileGauges {
    alignas(16) Gauge columns[BN];
    Gauge rows[BM];
};
struct BoundShared {
    Shared ring;
    TileGauges gauges[CONSUMERS];
};
static_assert(sizeof(BoundShared) <= 227 * 1024, "a block's shared memory");

// The tiles of C, in the order of tile_at, cut into as many runs as the first wave has blocks. The wave takes one tile of each
// run, at an offset that changes from run to run: otherwise runs of 16 tiles, a group's height, would show one row of each group.
struct Runs {
    int length, longer;  // tiles of a run; the first `longer` runs have one more

    __device__ __forceinline__ Runs(int tiles, int wave) : length(tiles / wave), longer(tiles % wave) {}

    __device__ __forceinline__ int begin(int run) const {
        return run * length + min(run, longer);
    }
    // The tile of the wave.
    __device__ __forceinline__ int sampled(int run) const {
        return begin(run) + run % length;
    }
    // The i-th of the tiles that the wave leaves.
    __device__ __forceinline__ int other(int i) const {
        const bool in_longer = i < longer * length;
        const int from = in_longer ? 0 : longer, rest = in_longer ? i : i - longer * length;
        const int others = in_longer ? length : length - 1, run = from + rest / others, place = rest % others;
        return begin(run) + place + (place >= run % length);
    }
};

__device__ __forceinline__ float largest_of_warp(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    }
    return x;
}

// worst, as bound_tiles has it, of the tiles tile_of(0) to tile_of(count - 1), in the order of tile_at.
template <class TileOf>
__device__ __forceinline__ void bound(const TensorMap& coarse_a, const TensorMap& coarse_b, const Gauge* gauges_a,
                                      const Gauge* gauges_b, float* worst, int count, const TileOf& tile_of, int m, int n,
                                      int k) {
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN;
    const auto place = [&](int i) {
        const Tile tile = tile_at(tile_of(i), rows, cols);
        return Corner{tile.row * BM, tile.col * BN};
    };
    const auto finish = [&](const float (&sums)[HALVES][BN / 2], int i, int warp, int lane) {
        const int t = tile_of(i), consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
        const Tile tile = tile_at(t, rows, cols);
        TileGauges& gauges = reinterpret_cast<BoundShared*>(shared_bytes)->gauges[consumer];
        const auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory"); };
        const Gauge none{0.0f, 0.0f};  // beyond C nothing is lost
        meet();                        // the tile before is compared
        for (int r = thread; r < BM; r += 128) {
            gauges.rows[r] = tile.row * BM + r < m ? gauges_a[tile.row * BM + r] : none;
        }
        for (int c = thread; c < BN; c += 128) {
            gauges.columns[c] = tile.col * BN + c < n ? gauges_b[tile.col * BN + c] : none;
        }
        meet();
        const Gauge* own = &gauges.rows[warp * 16 + lane / 4];
        const Gauge upper[HALVES] = {own[0], own[64]}, lower[HALVES] = {own[8], own[72]};
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const float4 pair = *reinterpret_cast<const float4*>(&gauges.columns[8 * j + lane % 4 * 2]);
            const Gauge left{pair.x, pair.y}, right{pair.z, pair.w};
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                most = larger_ratio(most, upper[half], left, sums[half][4 * j]);
                most = larger_ratio(most, upper[half], right, sums[half][4 * j + 1]);
                most = larger_ratio(most, lower[half], left, sums[half][4 * j + 2]);
                most = larger_ratio(most, lower[half], right, sums[half][4 * j + 3]);
            }
            if (j == 1) {
                most = largest_of_warp(most);  // of 256 elements: few of the others come to a division
            }
        }
        most = largest_of_warp(most);
        if (lane == 0) {
            worst[4 * t + warp] = most;
        }
    };
    walk_in_turn<float>(coarse_a, coarse_b, count, (k + BK - 1) / BK, place, finish);
}

// Whether `decide` would leave all of C to double if the other tiles needed what the first wave does. The same in all
// threads of a block.
__device__ __forceinline__ bool is_double_faster(const float4* worst, const Runs& runs, int wave, int m, int n, int k,
                                                 int loosened) {
    __shared__ unsigned pass[CHOICES];  // tiles for which LEAST + i moduli suffice
    if (threadIdx.x < CHOICES) {
        pass[threadIdx.x] = 0;
    }
    __syncthreads();
    float limits[CHOICES];
#pragma unroll
    for (int i = 0; i < CHOICES; ++i) {
        limits[i] = static_cast<float>(limit_of(LEAST + i, k, loosened));
    }
    for (int run = threadIdx.x; run < wave; run += THREADS) {
        const float4 four = worst[runs.sampled(run)];
        const float x = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
#pragma unroll
        for (int i = 0; i < CHOICES; ++i) {
            if (x <= limits[i]) {
                atomicAdd(&pass[i], 1u);
            }
        }
    }
    __syncthreads();
    const double work = 2.0 * m * n * k;
    const double read = static_cast<double>(m) * k + static_cast<double>(k) * n, written = static_cast<double>(m) * n;
#pragma unroll
    for (int i = 0; i < CHOICES; ++i) {
        const double share = static_cast<double>(pass[i]) / wave;
        const double time = work * ((1.0 - share) * TIME_TILES + share * (LEAST + i) * TIME_8_BIT) +
                            (LEAST + i + 8) * (read + share * written) * TIME_BYTE;
        if (time < work * TIME_DOUBLE) {
            return false;
        }
    }
    return true;
}

// One tile per block, or all of C if it has fewer tiles. Any number of blocks of THREADS
extern "C" __global__ void __launch_bounds__(THREADS, 1)
bound_first_wave(const __grid_constant__ TensorMap coarse_a, const __grid_constant__ TensorMap coarse_b,
                 const Gauge* gauges_a, const Gauge* gauges_b, float* worst, int m, int n, int k) {
    const int tiles = (m + BM - 1) / BM * ((n + BN - 1) / BN), wave = min(static_cast<int>(gridDim.x), tiles);
    const Runs runs(tiles, wave);
    bound(coarse_a, coarse_b, gauges_a, gauges_b, worst, wave, [&](int i) { return runs.sampled(i); }, m, n, k);
}

// The other tiles; if all of C goes to double, none, and the plan says so. Same grid as bound_first_wave
extern "C" __global__ void __launch_bounds__(THREADS, 1)
bound_others(const __grid_constant__ TensorMap coarse_a, const __grid_constant__ TensorMap coarse_b, int* plan,
             const Gauge* gauges_a, const Gauge* gauges_b, float* worst, int m, int n, int k, int loosened, int eager) {
    const int tiles = (m + BM - 1) / BM * ((n + BN - 1) / BN), wave = min(static_cast<int>(gridDim.x), tiles);
    const Runs runs(tiles, wave);
    if (!eager && is_double_faster(reinterpret_cast<const float4*>(worst), runs, wave, m, n, k, loosened)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            plan[PLAN_ROWS] = plan[PLAN_COLUMNS] = (1 << GROUPS) - 1;  // as the glance says it
        }
        return;
    }
    bound(coarse_a, coarse_b, gauges_a, gauges_b, worst, tiles - wave, [&](int i) { return runs.other(i); }, m, n, k);
}
