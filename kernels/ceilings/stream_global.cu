// Bandwidth of global memory: every block reads and adds up a chunk.
//
// Idea:       the array is read k times over, 32 KB a block, and nothing is written but a sum a block. An array that
//             fits L2 comes from there from the second pass on; a much larger one comes from DRAM. The sums are of
//             integers, so that any order gives the same and nothing can be left out. The loads bypass L1.
// Parameters: 256 threads with eight 128-bit loads each, all in flight together; small blocks, so that the last wave
//             weighs little on any GPU.
// Expected:   5.5 TB/s from L2 and 4.4 from DRAM on an H200; the article says ~2 and 0.8 to 3.3 (kernels/ladder/NOTES.md).
// Takes:      n a multiple of 8192 words.

constexpr int THREADS = 256;
constexpr int CHUNK = 8192;  // words a block
constexpr int LOADS = CHUNK / (4 * THREADS);

extern "C" __global__ void __launch_bounds__(THREADS) stream_global(const uint4* words, int n, int k, unsigned* sums) {
    // words: [n / 4]   sums: [pass, chunk]   grid: (n / CHUNK, k)
    const uint4* chunk = words + size_t(blockIdx.x) * (CHUNK / 4) + threadIdx.x;
    uint4 loaded[LOADS];
#pragma unroll
    for (int load = 0; load < LOADS; ++load) {
        loaded[load] = __ldcg(&chunk[load * THREADS]);
    }
    unsigned sum = 0;
#pragma unroll
    for (int load = 0; load < LOADS; ++load) {
        sum += loaded[load].x + loaded[load].y + loaded[load].z + loaded[load].w;
    }
    sum = __reduce_add_sync(~0u, sum);
    __shared__ unsigned of_warps[THREADS / 32];
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned of_warp : of_warps) {
            sum += of_warp;
        }
        sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
    }
}
