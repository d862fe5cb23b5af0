// C = A B, row-major fp32 of any size: tiles of 64 x 64, 16 deep, in shared memory; a thread keeps 4 x 4 of C.
#include <cuda_runtime.h>

constexpr int TILE = 64, DEPTH = 16, EACH = 4, THREADS = TILE / EACH;

__device__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[DEPTH][TILE], right[DEPTH][TILE];
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    const int thread = threadIdx.y * THREADS + threadIdx.x;
    float sums[EACH][EACH] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int place = thread; place < TILE * DEPTH; place += THREADS * THREADS) {
            const int i = row + place / DEPTH, p = start + place % DEPTH;
            left[place % DEPTH][place / DEPTH] = i < m && p < k ? a[(size_t)i * k + p] : 0.0f;
            const int q = start + place / TILE, j = column + place % TILE;
            right[place / TILE][place % TILE] = q < k && j < n ? b[(size_t)q * n + j] : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < DEPTH; ++p)
            for (int i = 0; i < EACH; ++i)
                for (int j = 0; j < EACH; ++j)
                    // A product with what lies beyond K would make NaN of an infinity: both sides are zero there.
                    sums[i][j] += left[p][threadIdx.y * EACH + i] * right[p][threadIdx.x + j * THREADS];
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) {
            const int y = row + threadIdx.y * EACH + i, x = column + threadIdx.x + j * THREADS;
            if (y < m && x < n) c[(size_t)y * n + x] = sums[i][j];
        }
}

struct Params {
    const float *a, *b;
    float* c;
    int m, n, k;
};

extern "C" __global__ void by_params(const Params p) { multiply(p.a, p.b, p.c, p.m, p.n, p.k); }

__global__ void by_pointers(const float* a, const float* b, float* c, int m, int n, int k) {
    multiply(a, b, c, m, n, k);
}

extern "C" int tiled(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), block(THREADS, THREADS);
    by_pointers<<<grid, block, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}
