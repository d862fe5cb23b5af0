// Bandwidth of shared memory: every block reads its chunk again and again.
//
// Idea:       a block copies 32 KB to shared memory once and then reads all of it k times, 128 bits a thread and no
//             bank conflicts. Each pass shifts the threads along the chunk, so that no thread reads an address twice
//             in a row, and adds up what it reads: integers, so that any order gives the same and nothing can be left
//             out.
// Parameters: 1024 threads, two blocks an SM: each thread reads two 128-bit words a pass.
// Expected:   128 bytes a cycle and SM: 33 TB/s on an H200; the article says ~12 (kernels/ladder/NOTES.md).
// Takes:      n a multiple of 8192 words.

constexpr int THREADS = 1024;
constexpr int CHUNK = 8192;            // words a block
constexpr int VECTORS = CHUNK / 4;     // of 128 bits
constexpr int READS = VECTORS / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS, 2) stream_shared(const uint4* words, int n, int k, unsigned* sums) {
    // words: [n / 4]   sums: [chunk]; the sum of k passes   grid: n / CHUNK
    __shared__ uint4 chunk[VECTORS];
#pragma unroll
    for (int read = 0; read < READS; ++read) {
        chunk[read * THREADS + threadIdx.x] = words[size_t(blockIdx.x) * VECTORS + read * THREADS + threadIdx.x];
    }
    __syncthreads();

    unsigned sum = 0;
    unsigned from = threadIdx.x;
#pragma unroll 4
    for (int pass = 0; pass < k; ++pass, from += 32) {
#pragma unroll
        for (int read = 0; read < READS; ++read) {
            const uint4 v = chunk[(from + read * THREADS) % VECTORS];
            sum += v.x + v.y + v.z + v.w;
        }
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
        sums[blockIdx.x] = sum;
    }
}
