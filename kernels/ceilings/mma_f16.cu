// Ceiling: how many multiply-adds a second mma.sync does when its operands already lie in registers.
//
// Idea:       eight warps a multiprocessor, each making 64 x 64 sums from four fragments of A and eight of B by 32
//             mma.sync m16n8k16, fp16 to fp32, over and over: the inner step of the best GEMM of this instruction,
//             without loads, barriers or stores. Even iterations multiply fragments of amplitude `a`, odd ones the same
//             fragments with amplitude `b`; with b = -a the sums come back to about zero, so they stay small for ever.
//             Power follows the bits, and clock follows power: hence elements that look normally distributed.
// Parameters: 128 sums a thread and 48 registers of operands: one block of 256 threads fits a multiprocessor.
// Floor:      flops = grid * 8 warps * iterations * 32 mma * 16 * 8 * 16 * 2.
// Writes:     out[0], by the first thread of the grid: its 128 sums added up, which are rows 0 and 8 of every 16 and
//             columns 0 and 1 of every 8. Any host can compute it: the elements are a hash of where they stand.

#include "common/mma.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int MMA_M = 4, MMA_N = 8;  // tiles of 16 x 8 a warp

__device__ __forceinline__ unsigned hash(unsigned h) {
    h *= 0x9E3779B1u;
    h ^= h >> 16, h *= 0x85EBCA6Bu;
    h ^= h >> 13, h *= 0xC2B2AE35u;
    return h ^ h >> 16;
}

// A number as if drawn from N(0, 1), from the place where it stands: four uniform numbers of 16 bits added up, less
// their mean, over 2^15 (their standard deviation is 1.15 * 2^15). Exact in fp32 before it is rounded to an element.
__device__ __forceinline__ float scatter(unsigned place) {
    const unsigned one = hash(2 * place), two = hash(2 * place + 1);
    const int sum = (one & 0xFFFF) + (one >> 16) + (two & 0xFFFF) + (two >> 16);
    return static_cast<float>(sum - 2 * 0xFFFF) / 32768.0f;
}

// Elements k and k + 1 of a row of 16.
__device__ __forceinline__ Word two(unsigned first, int row, int k, float amplitude) {
    const unsigned place = first + row * 16 + k;
    return pack<fp16>(amplitude * scatter(place), amplitude * scatter(place + 1));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
mma_loop(float* out, int iterations, float a, float b) {  // out: [1]   a, b: amplitudes of A, in turn
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, k = threadIdx.x % 4 * 2;
    const unsigned first_a = warp * 2048, first_b = first_a + 1024;  // a warp's A and B are 64 rows of 16 each
    Word even[MMA_M][4], odd[MMA_M][4], right[MMA_N][2];
#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = 16 * i + g + e % 2 * 8, column = k + e / 2 * 8;
            even[i][e] = two(first_a, row, column, a);
            odd[i][e] = two(first_a, row, column, b);
        }
    }
#pragma unroll
    for (int j = 0; j < MMA_N; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            right[j][e] = two(first_b, 8 * j + g, k + e * 8, 1.0f);
        }
    }

    float sums[MMA_M][MMA_N][4] = {};
    auto add = [&](const Word (&left)[MMA_M][4]) {
#pragma unroll
        for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
            for (int j = 0; j < MMA_N; ++j) {
                mma(sums[i][j], left[i], right[j]);
            }
        }
    };
#pragma unroll 1
    for (int iteration = 0; iteration + 1 < iterations; iteration += 2) {
        add(even);
        add(odd);
    }
    if (iterations % 2) {
        add(even);
    }

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MMA_M; ++i) {
#pragma unroll
        for (int j = 0; j < MMA_N; ++j) {
            sum += sums[i][j][0] + sums[i][j][1] + sums[i][j][2] + sums[i][j][3];
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *out = sum;
    }
}
