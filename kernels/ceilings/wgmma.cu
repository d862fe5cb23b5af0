// Ceiling: how many multiply-adds a second the tensor cores do when their operands already lie in shared memory.
//
// Idea:       two warpgroups a multiprocessor, each multiplying its own 64 x 64 of A by a common 256 x 64 of B, with
//             wgmma m64n256k16, the widest there is: the inner loop of the best GEMM, without copies, barriers or
//             stores. Iteration i adds A[s] B[s + i], s over the STAGES tiles of each, and A[s + 2] = -A[s]: four
//             iterations bring the sums back to about zero, so they stay small for ever. This is no ceiling of
//             cycles alone: under this load the GPU reaches its power cap and lowers its clock, and power follows
//             the bits. Hence elements that look normally distributed; zeros or small integers would run faster than
//             any real matrix.
// Parameters: STAGES = 4 fills 192 KB, as the ring of a GEMM would. 16 wgmma an iteration and warpgroup.
// Floor:      flops = grid * 2 warpgroups * iterations * 16 wgmma * 64 * 256 * 16 * 2.
// Writes:     out[0], by the first thread of the grid: its 128 sums added up, which are columns 8j and 8j + 1 of rows 0
//             and 8. Any host can compute it: the elements are a hash of where they stand.

#include "common/wgmma.cuh"

using Element = bf16;

constexpr int BM = 128, BN = 256, BK = 64;  // a stage: A is BM x BK, B is BN x BK, both K-major
constexpr int STAGES = 4;
constexpr int THREADS = 256;
static_assert(STAGES == 4, "A[2] = -A[0] and A[3] = -A[1]");
static_assert(STAGES * (BM + BN) * BK * sizeof(Element) <= 227 * 1024, "a block has 227 KB");

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

// Fill rows of 64 elements; element (row, k) has place first + row * 64 + k and stands where the swizzle puts it.
__device__ void fill(Element* tiles, int rows, unsigned first, float amplitude) {
    for (int i = threadIdx.x; i < rows * BK / 2; i += THREADS) {  // two elements, a word, at a time
        const int row = i / (BK / 2), k = i % (BK / 2) * 2;
        const unsigned place = first + row * BK + k;
        reinterpret_cast<Word*>(tiles)[row * (BK / 2) + ((k / 8 ^ row % 8) * 8 + k % 8) / 2] =
            pack<Element>(amplitude * scatter(place), amplitude * scatter(place + 1));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wgmma_loop(float* out, int iterations, float a, float b) {  // out: [1]   a, b: amplitudes of A and of B
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Element* As = reinterpret_cast<Element*>(shared_bytes);  // [STAGES][BM][BK]
    Element* Bs = As + STAGES * BM * BK;                     // [STAGES][BN][BK]
    fill(As, 2 * BM, 0, a);
    fill(As + 2 * BM * BK, 2 * BM, 0, -a);
    fill(Bs, STAGES * BN, 2 * BM * BK, b);
    shared_fence();  // what threads wrote, the tensor cores read
    __syncthreads();

    const Descriptor A = describe(As + threadIdx.x / 128 * 64 * BK), B = describe(Bs);
    constexpr int A_STAGE = BM * BK * sizeof(Element) >> 4, B_STAGE = BN * BK * sizeof(Element) >> 4;
    float sums[BN / 2] = {};
#pragma unroll 1
    for (int iteration = 0; iteration < iterations; ++iteration) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            const Descriptor tile_a = A + s * A_STAGE, tile_b = B + (s + iteration) % STAGES * B_STAGE;
#pragma unroll
            for (int slice = 0; slice < BK / 16; ++slice) {
                wgmma<BN, Element>(sums, tile_a + slice * NEXT_K16, tile_b + slice * NEXT_K16, true);
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_finish(sums);

    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) {
            sum += sums[i];
        }
        *out = sum;
    }
}
