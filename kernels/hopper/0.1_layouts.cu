// Which layouts of its operands in shared memory wgmma reads right.
//
// Idea:       the sketch's instruction on tiles that threads write, in one of four layouts, with a descriptor whose fields
//             are arguments. The experiment `layouts` tries them all.
// Parameters: tiles of 64 x 64 of A and of B. Layouts, by the place of element (p, i), p along k and i along m or n:
//             SWIZZLED  rows of p, 128 bytes each; the 16-byte chunk c of row p at chunk c ^ (p % 8)
//             ROWS      rows of p, chunks in order: plain row-major
//             COLUMNS   rows of i: plain column-major
//             CORES     blocks of 8 x 8 elements, 128 bytes each, chunk after chunk: no swizzle
// Expected:   SWIZZLED is right with mode 1 (128-byte swizzle) and 1024 bytes from eight rows to the next; CORES is right
//             with mode 0 (none); ROWS and COLUMNS with no mode and no distances.
// Takes:      as 0_sketch.cu, and m, n and k multiples of 64.

#include "common/wgmma_f16.cuh"

using Element = fp16;

constexpr int BM = 64, BN = 64, BK = 64;
constexpr int THREADS = 128;
constexpr int TILE = BK * BM;   // elements
constexpr int ROOM = 24 * 1024;  // elements: a descriptor's distances may lead beyond the tiles
enum Layout { SWIZZLED, ROWS, COLUMNS, CORES };

// Where element i of row p of a tile lies, counted in elements.
__device__ __forceinline__ int place(int layout, int p, int i) {
    const int chunk = i / 8, within = i % 8;
    if (layout == SWIZZLED) {
        return p * 64 + (chunk ^ p % 8) * 8 + within;
    }
    if (layout == ROWS) {
        return p * 64 + i;
    }
    if (layout == COLUMNS) {
        return i * 64 + p;
    }
    return p / 8 * 512 + chunk * 64 + p % 8 * 8 + within;
}

// mode: bits 62-63 of the descriptor: none, 128-, 64- or 32-byte swizzle   leading, stride: bits 16-29 and 32-45, bytes
extern "C" __global__ void __launch_bounds__(THREADS)
layouts(const Element* A, const Element* B, Element* C, int m, int n, int k, int layout, int mode, int leading,
        int stride) {
    // A: [k, m]   B: [k, n]   C: [m, n]   grid: (n / BN, m / BM)   block: THREADS
    alignas(1024) __shared__ Element tiles[ROOM];
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    for (int e = threadIdx.x; e < ROOM; e += THREADS) {
        tiles[e].bits = 0;
    }
    const auto describe_by = [&](const Element* tile) {
        const unsigned address = (shared_address(tile) & 0x3FFFF) >> 4;
        return static_cast<Descriptor>(mode) << 62 | static_cast<Descriptor>(stride >> 4) << 32 |
               static_cast<Descriptor>(leading >> 4) << 16 | address;
    };
    const Descriptor a = describe_by(tiles), b = describe_by(tiles + TILE);
    Word sums[BN / 4] = {};
    for (int p0 = 0; p0 < k; p0 += BK) {
        __syncthreads();  // the tiles are free
        for (int e = threadIdx.x; e < TILE; e += THREADS) {
            const int p = e / 64, i = e % 64;
            tiles[place(layout, p, i)] = A[static_cast<size_t>(p0 + p) * m + block_row + i];
            tiles[TILE + place(layout, p, i)] = B[static_cast<size_t>(p0 + p) * n + block_col + i];
        }
        shared_fence();
        __syncthreads();

        wgmma_fence();
#pragma unroll
        for (int s = 0; s < BK / 16; ++s) {
            wgmma_f16(sums, a + s * NEXT_K16_MN, b + s * NEXT_K16_MN, p0 > 0 || s > 0);
        }
        wgmma_commit();
        wgmma_finish(sums);
    }

    const int row = block_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int col = block_col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
        const int r = row + i % 2 * 8, c = col + i / 2 * 8;
        *reinterpret_cast<Word*>(&C[static_cast<size_t>(r) * n + c]) = sums[i];
    }
}
