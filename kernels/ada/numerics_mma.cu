// Numerics: the running sum kept inside the tensor core, or outside of it.
//
// Question:   mma.sync adds 16 products to an accumulator in an arithmetic of its own, which the manual leaves open. A
//             kernel may hand its running sum to the instruction (inside), or have every instruction begin at zero and
//             add what comes out with an ordinary fp32 addition, rounded to nearest (outside). The article says that
//             outside the total rounding error is lower.
// Parameters: INSIDE is how many instructions' products are added inside before their sum goes outside: 1 is the
//             article's outside, 0 means all of them. COMPENSATED keeps what each outside addition rounds away (two-sum)
//             and adds it at the end, so that only the errors inside the instruction are left.
// Takes:      A row-major [m, k], B K-major (stored [n, k]), C row-major [m, n]; fp16 in, fp32 sums and output. Any m and
//             n, k a multiple of 16. Fragments come straight from global memory: this is run for its sums, not for speed.

#include <cstdint>

#ifndef INSIDE
#define INSIDE 0
#endif
#ifndef COMPENSATED
#define COMPENSATED 0
#endif

constexpr int BM = 64, BN = 64;             // a block's tile of C
constexpr int WM = 32, WN = 32;             // a warp's
constexpr int MI = WM / 16, NI = WN / 8;    // in tiles of an instruction, 16 x 8
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int STEP = INSIDE > 0 ? INSIDE : 1;  // instructions along K a turn of the loop
constexpr int WORDS = 8;                    // an instruction's 16 halves along K, two a word
static_assert(!COMPENSATED || INSIDE > 0, "nothing is added outside");

// sums += A B for one 16 x 8 tile and 16 of K; where each element lies is in the PTX manual (m16n8k16, .f16).
__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// sum += x; what the rounding of it loses goes to `lost`, exactly.
__device__ __forceinline__ void two_sum(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float back = next - sum;
    lost += (sum - (next - back)) + (x - back);
    sum = next;
}

extern "C" __global__ void __launch_bounds__(THREADS)
accumulate_mma(const uint32_t* A, const uint32_t* B, float* C, int m, int n, int k) {
    // A: [m, k / 2]   B: [n, k / 2]   C: [m, n]   grid: (n / BN, m / BM), rounded up   block: THREADS
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
    const int row0 = blockIdx.y * BM + warp / (BN / WN) * WM;
    const int col0 = blockIdx.x * BN + warp % (BN / WN) * WN;
    const int words = k / 2;

    float sums[MI][NI][4] = {};
    [[maybe_unused]] float lost[MI][NI][4] = {};
    for (int p0 = 0; p0 < words; p0 += STEP * WORDS) {
        [[maybe_unused]] float inside[MI][NI][4] = {};
#pragma unroll
        for (int s = 0; s < STEP; ++s) {
            const int p = p0 + s * WORDS;
            if (s > 0 && p >= words) break;
            uint32_t a[MI][4], b[NI][2];
#pragma unroll
            for (int i = 0; i < MI; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = row0 + i * 16 + e % 2 * 8 + group;
                    a[i][e] = row < m ? A[static_cast<size_t>(row) * words + p + e / 2 * 4 + pair] : 0;
                }
            }
#pragma unroll
            for (int j = 0; j < NI; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int col = col0 + j * 8 + group;
                    b[j][e] = col < n ? B[static_cast<size_t>(col) * words + p + e * 4 + pair] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < MI; ++i) {
#pragma unroll
                for (int j = 0; j < NI; ++j) {
                    mma(INSIDE > 0 ? inside[i][j] : sums[i][j], a[i], b[j]);
                }
            }
        }
        if constexpr (INSIDE > 0) {
#pragma unroll
            for (int i = 0; i < MI; ++i) {
#pragma unroll
                for (int j = 0; j < NI; ++j) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if constexpr (COMPENSATED) {
                            two_sum(sums[i][j][e], lost[i][j][e], inside[i][j][e]);
                        } else {
                            sums[i][j][e] += inside[i][j][e];
                        }
                    }
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < MI; ++i) {
#pragma unroll
        for (int j = 0; j < NI; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = row0 + i * 16 + e / 2 * 8 + group, col = col0 + j * 8 + pair * 2 + e % 2;
                float sum = sums[i][j][e];
                // Beyond the largest float there is nothing to correct, and infinity less infinity is no number.
                if constexpr (COMPENSATED) sum = isfinite(sum) ? sum + lost[i][j][e] : sum;
                if (row < m && col < n) C[static_cast<size_t>(row) * n + col] = sum;
            }
        }
    }
}
