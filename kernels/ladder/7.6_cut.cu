// Level 7.6: the last turn is cut.
//
// New:        blocks come in turns, one block a multiprocessor, and the last turn is seldom whole: at 4096 it has 116
//             tiles for 132 multiprocessors. Its tiles are therefore cut along K: one long piece each and one or more
//             short ones, as many times shorter as the multiprocessors that would idle have short pieces to do one
//             after the other. The grid is whole tiles, then long pieces, then short ones, and blocks start in that
//             order. Nobody waits: a block leaves its sums in global memory and counts itself, and whoever comes last
//             adds them up, in the order of K whoever that is, so the result repeats bit for bit.
// Parameters: those of level 7.5. The number of pieces follows from the grid, which the launch chooses: any number
//             gives right results. MULTIPROCESSORS = 132, of an H100 or H200; elsewhere the last turn is cut less well.
// Expected:   a multiprocessor has 20 of 1024 steps less to do at 4096, 2.0%, and 200 of 8192 at 8192, 2.4%; leaving
//             128 KB of sums and adding them costs a block 1 to 2 steps of 4096 cycles. At 1024, where 32 tiles become
//             128 pieces, three times faster.
// Takes:      as level 7.5. One launch at a time: two at once would mix their sums.

#include "common/pinned.cuh"
#include "common/tma.cuh"

#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS BM = 128, BN = 256, BK = 16, WM = 64, WN = 64, WNITER = 4, TM = 4, TN = 4, STORE_AT = 12
#endif
constexpr int PARAMETERS;                                  // A is stored to shared memory in step STORE_AT of a tile
constexpr int WMITER = WM * WN / (32 * TM * TN * WNITER);  // 2: sub-tiles along M
constexpr int SUBM = WM / WMITER, SUBN = WN / WNITER;      // a sub-tile is 32 x 16
constexpr int THREADS = BM / WM * (BN / WN) * 32;          // 256
constexpr int A_COLUMNS = THREADS / BM * 4;                // 8 columns of the A tile are copied at a time
constexpr int A_FLOAT4S = BK / A_COLUMNS;                  // 2 float4 of A a thread and tile
static_assert(BM % WM == 0 && BN % WN == 0, "warps tile the block's tile exactly");
static_assert(WMITER * WNITER * 32 * TM * TN == WM * WN, "sub-tiles tile the warp's tile exactly");
static_assert(SUBM % TM == 0 && SUBN % TN == 0 && SUBM / TM == 8 && SUBN / TN == 4, "a warp's lanes tile a sub-tile");
static_assert(TM % 4 == 0 && TN % 4 == 0, "fragments are read four at a time");
static_assert(THREADS % BM == 0 && BK % A_COLUMNS == 0 && BM % 32 == 0, "threads copy the A tile in whole passes");
static_assert(BK % 2 == 0, "the last step of a tile uses the second set of registers, the next tile's first the first");
static_assert(BN <= 256 && BK <= 256, "a box of the copy engine");
static_assert(STORE_AT < BK - 1, "A is stored before the barrier that precedes its first use");
constexpr int MULTIPROCESSORS = 132;
constexpr int COST = 4;  // steps that a piece costs beside its own: filling the pipeline, leaving its sums
constexpr int SLOTS = 2 * MULTIPROCESSORS;  // pieces of all cut tiles together, at most
constexpr int FLOAT4S = WMITER * TM * WNITER * TN / 4;  // 32 of a thread's sums
constexpr int AT_ONCE = 16;                             // of them are read back together
static_assert(FLOAT4S % AT_ONCE == 0, "sums are read back in whole passes");

__device__ float4 left_sums[SLOTS][FLOAT4S][THREADS];  // of each piece, as its threads hold them
__device__ unsigned arrived_pieces[MULTIPROCESSORS];   // of each cut tile; 0 before and after a launch

// What a block computes: steps `from` to `to` of a tile's way along K, and which of its tile's pieces that is.
struct Piece {
    int tile, from, to;
    int cut_tile, pieces, index;

    __device__ __forceinline__ Piece(int tiles, int steps) {
        const int whole = tiles / MULTIPROCESSORS * MULTIPROCESSORS, over = tiles - whole;
        const int block = blockIdx.x;
        tile = block, from = 0, to = steps, cut_tile = 0, pieces = 1, index = 0;
        if (gridDim.x == tiles || block < whole) {
            return;
        }
        pieces = (gridDim.x - whole) / over;
        index = (block - whole) / over, cut_tile = (block - whole) % over;
        tile = whole + cut_tile;
        // Multiprocessors without a long piece do `queue` short ones each, in the time of one long one.
        const int idle = MULTIPROCESSORS - over, queue = (over * (pieces - 1) + idle - 1) / idle;
        const int brief = (steps - queue * COST) / (queue + pieces - 1);  // steps of a short piece
        from = index == 0 ? 0 : steps - (pieces - index) * brief;
        to = steps - (pieces - 1 - index) * brief;
    }
};

__device__ __forceinline__ float4 load4(const float* from) {
    return *reinterpret_cast<const float4*>(from);
}

__device__ __forceinline__ void store4(float* to, float4 value) {
    *reinterpret_cast<float4*>(to) = value;
}

// Whether this block comes last of its tile's pieces. What the others left is then there to be read.
__device__ __forceinline__ bool comes_last(const Piece& piece, bool* shared_answer) {
    __threadfence();
    __syncthreads();  // every thread has left its sums, for all to see
    if (threadIdx.x == 0) {
        unsigned* arrived = &arrived_pieces[piece.cut_tile];
        *shared_answer = atomicAdd(arrived, 1) == piece.pieces - 1;
        if (*shared_answer) {
            *arrived = 0;  // for the next launch
        }
        __threadfence();
    }
    __syncthreads();
    return *shared_answer;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
cut(int m, int n, int k, float alpha, const float* A, const __grid_constant__ TensorMap B, float beta, float* C) {
    // A: [m, k]   B: boxes [BK, BN] of [k, n]   C: [m, n]   grid: see Piece   block: THREADS
    extern __shared__ __align__(128) float4 dynamic_shared[];
    float* Bs = reinterpret_cast<float*>(dynamic_shared);              // [2][BK][BN]: [slot, p, column of C]
    float* As = Bs + 2 * BK * BN;                                      // [2][BK][BM]: [slot, p, row of C]
    Barrier* arrived = reinterpret_cast<Barrier*>(As + 2 * BK * BM);  // [2]: [slot] of B
    __shared__ bool last_arrived;

    const int cols = n / BN;
    const Piece piece(cols * (m / BM), k / BK);
    const int block_row = piece.tile / cols * BM;
    const int block_col = piece.tile % cols * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Which of a sub-tile's 8 x 4 threads a lane is: bits 0 and 2 count columns, bits 1, 3 and 4 rows.
    const int lane_row = lane / 2 % 2 + lane / 8 * 2, lane_col = lane % 2 + lane / 4 % 2 * 2;
    const int row = warp / (BN / WN) * WM + lane_row * TM;  // corner of this thread's outputs in the first sub-tile;
    const int col = warp % (BN / WN) * WN + lane_col * TN;  // the others lie SUBM and SUBN apart
    const int a_row = threadIdx.x % BM, a_col = threadIdx.x / BM * 4;  // the first float4 it copies of A
    const float* a_from = &A[(block_row + a_row) * k + piece.from * BK + a_col];
    float* a_to = &As[a_col * BM + a_row];

    auto copy_b = [&](int slot, int t) {
        if (threadIdx.x == 0) {
            barrier_expect(&arrived[slot], BK * BN * sizeof(float));
            tma_load(&Bs[slot * BK * BN], B, &arrived[slot], block_col, (piece.from + t) * BK);
        }
    };
    float4 a_next[A_FLOAT4S];
    auto load_a = [&]() {
#pragma unroll
        for (int c = 0; c < A_FLOAT4S; ++c) {
            a_next[c] = load4(&a_from[c * A_COLUMNS]);
        }
        a_from += BK;
    };
    auto store_a = [&](int slot) {
#pragma unroll
        for (int c = 0; c < A_FLOAT4S; ++c) {
            float* to = &a_to[slot * BK * BM + c * A_COLUMNS * BM];
            to[0 * BM] = a_next[c].x, to[1 * BM] = a_next[c].y, to[2 * BM] = a_next[c].z, to[3 * BM] = a_next[c].w;
        }
    };
    float a[2][WMITER * TM], b[2][WNITER * TN];  // operands of the step at hand and of the next one
    auto read_fragments = [&](int set, int slot, int p) {
        const float* a_tile = &As[slot * BK * BM + row];
        const float* b_tile = &Bs[slot * BK * BN + col];
#pragma unroll
        for (int i = 0; i < WMITER * TM; i += 4) {
            read4_pinned(&a[set][i], &a_tile[p * BM + i / TM * SUBM + i % TM]);
        }
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            read4_pinned(&b[set][j], &b_tile[p * BN + j / TN * SUBN + j % TN]);
        }
    };

    if (threadIdx.x == 0) {
        barrier_init(&arrived[0], 1);
        barrier_init(&arrived[1], 1);
        barrier_init_fence();
    }
    copy_b(0, 0);
    load_a();
    store_a(0);
    __syncthreads();  // the barriers are made, and A is stored
    barrier_wait(&arrived[0], 0);
    read_fragments(0, 0, 0);

    const int tiles = piece.to - piece.from;
    float sums[WMITER * TM][WNITER * TN] = {};
#pragma unroll 1
    for (int t = 0, slot = 0; t < tiles; ++t, slot ^= 1) {
        const bool more = t + 1 < tiles;
        if (more) {  // into the slot of tile t - 1, which everyone has left
            copy_b(slot ^ 1, t + 1);
            load_a();
        }

#pragma unroll
        for (int p = 0; p < BK; ++p) {
            if (p < BK - 1) {
                read_fragments((p + 1) % 2, slot, p + 1);
            } else {
                if (more) {
                    barrier_wait(&arrived[slot ^ 1], (t + 1) / 2 % 2);
                }
                __syncthreads();                 // everyone has stored A, and has read the last of tile t
                read_fragments(0, slot ^ 1, 0);  // past the last tile: what the slot holds, and never used
            }
            if (p == STORE_AT) {
                store_a(slot ^ 1);
            }
#pragma unroll
            for (int j = 0; j < WNITER * TN; ++j) {
#pragma unroll
                for (int down = 0; down < WMITER * TM; ++down) {
                    const int i = j % 2 == 0 ? down : WMITER * TM - 1 - down;
                    sums[i][j] += a[p % 2][i] * b[p % 2][j];
                }
            }
        }
    }

    const auto finish = [&](int i, int j, float4 sum) {  // of row i and columns j to j + 3 of the thread's
        float* out = &C[(block_row + row + i / TM * SUBM + i % TM) * n + block_col + col + j / TN * SUBN + j % TN];
        const float4 old = beta == 0.0f ? float4{} : load4(out);
        store4(out, {sum.x + beta * old.x, sum.y + beta * old.y, sum.z + beta * old.z, sum.w + beta * old.w});
    };
    float4(*left)[FLOAT4S][THREADS] = &left_sums[piece.cut_tile * piece.pieces];  // [pieces][FLOAT4S][THREADS]
#pragma unroll
    for (int i = 0; i < WMITER * TM; ++i) {
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            const float4 sum = {alpha * sums[i][j + 0], alpha * sums[i][j + 1],  //
                                alpha * sums[i][j + 2], alpha * sums[i][j + 3]};
            if (piece.pieces == 1) {
                finish(i, j, sum);
            } else {  // sums times alpha, in registers of their own: stored as they are, they would bind ptxas to quads
                left[piece.index][(i * WNITER * TN + j) / 4][threadIdx.x] = sum;
            }
        }
    }
    if (piece.pieces > 1 && comes_last(piece, &last_arrived)) {
        for (int first = 0; first < FLOAT4S; first += AT_ONCE) {
            float4 total[AT_ONCE] = {};
#pragma unroll 1
            for (int other = 0; other < piece.pieces; ++other) {
#pragma unroll
                for (int f = 0; f < AT_ONCE; ++f) {
                    const float4 part = __ldcg(&left[other][first + f][threadIdx.x]);
                    total[f].x += part.x, total[f].y += part.y, total[f].z += part.z, total[f].w += part.w;
                }
            }
#pragma unroll
            for (int f = 0; f < AT_ONCE; ++f) {
                finish((first + f) / (WNITER * TN / 4), (first + f) % (WNITER * TN / 4) * 4, total[f]);
            }
        }
    }
}
