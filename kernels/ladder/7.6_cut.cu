// Level 7.6: the last wave is split along K.
//
// New:        blocks run in waves, one block an SM, and the last wave is seldom full: at 4096 it has 116 tiles for 132
//             SMs. Its tiles are therefore split along K, as in stream-K: one long piece each and one or more short
//             ones, shorter in proportion to how many of them each SM that would idle computes one after the other.
//             The grid is whole tiles, then long pieces, then short ones, and blocks start in that order. Nobody
//             waits: a block stores its sums to the workspace and counts itself, and the last to arrive adds them up,
//             in the order of K whichever it is, so that results repeat bit for bit.
// Parameters: those of level 7.5. The launch chooses the number of pieces through its grid. Any grid of at least one
//             block a tile gives right results: a piece may be empty, blocks beyond whole pieces do nothing, and a
//             smaller grid traps. `cut` is for the 132 SMs of an H100 or H200, whose number the compiler then knows;
//             `cut_any` takes another as an argument.
//             The workspace belongs to the caller, so that launches on several streams each have their own, and may
//             hold anything: a counter names the launch that it counts for.
// Expected:   an SM has 20 of 1024 steps less to do at 4096, 2.0%, and 200 of 8192 at 8192, 2.4%; storing 128 KB of
//             sums and adding them costs a block 1 to 2 steps of 4096 cycles. At 1024, where 32 tiles become 128
//             pieces, three times faster.
// Takes:      as level 7.5. The workspace: 128 KB of sums for each block beyond the whole waves, and 132 counters.

#include "common/grid.cuh"
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
static_assert(BN <= 256 && BK <= 256, "the largest box of TMA");
static_assert(STORE_AT < BK - 1, "A is stored before the barrier that precedes its first use");
constexpr int COST = 4;  // steps that a piece costs beside its own: filling the pipeline, storing its sums
constexpr int FLOAT4S = WMITER * TM * WNITER * TN / 4;  // 32 of a thread's sums
constexpr int AT_ONCE = 16;                             // of them are read back together
static_assert(FLOAT4S % AT_ONCE == 0, "sums are read back in whole passes");

// What a block computes: steps `from` to `to` of a tile's way along K, and which of its tile's pieces that is. Zero
// pieces: nothing.
struct Piece {
    int tile, from, to;
    int cut_tile, pieces, index;

    __device__ __forceinline__ Piece(int tiles, int steps, int multiprocessors) {
        const int whole = tiles / multiprocessors * multiprocessors, over = tiles - whole;
        const int block = blockIdx.x, beyond = int(gridDim.x) - whole;
        tile = block, from = 0, to = steps, cut_tile = 0, pieces = 1, index = 0;
        if (block < whole) {
            return;
        }
        pieces = over > 0 ? beyond / over : 0;
        index = over > 0 ? (block - whole) / over : 0, cut_tile = over > 0 ? (block - whole) % over : 0;
        if (index >= pieces) {
            pieces = 0;
        }
        if (pieces <= 1) {
            return;
        }
        tile = whole + cut_tile;
        // SMs without a long piece compute `queue` short ones each, in the time of one long one. With few steps of K
        // the short ones are empty.
        const int idle = multiprocessors - over, queue = (over * (pieces - 1) + idle - 1) / idle;
        const int brief = max(0, (steps - queue * COST) / (queue + pieces - 1));  // steps of a short piece
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

using Count = unsigned long long;

// Count an arrival; returns how many of this launch came before. The upper 48 bits of a counter say which launch it
// counts for, so that it may hold anything at first.
__device__ __forceinline__ int arrive(Count* counter) {
    const Count launch = grid_id() << 16;
    for (Count seen = *counter;;) {
        const Count before = seen >> 16 << 16 == launch ? seen : launch;
        const Count now = atomicCAS(counter, seen, before + 1);
        if (now == seen) {
            return static_cast<int>(before - launch);
        }
        seen = now;
    }
}

// Whether this block is the last of its tile's pieces to arrive. The sums of the others are then visible.
__device__ __forceinline__ bool comes_last(const Piece& piece, Count* arrivals, bool* shared_answer) {
    __threadfence();
    __syncthreads();  // every thread has stored its sums, visible to all
    if (threadIdx.x == 0) {
        Count* counter = &arrivals[piece.cut_tile];
        *shared_answer = arrive(counter) == piece.pieces - 1;
        if (*shared_answer) {
            *counter = ~Count(0);  // no launch's, if a graph repeats this one under the same number
        }
        __threadfence();
    }
    __syncthreads();
    return *shared_answer;
}

__device__ __forceinline__ void cut_for(int multiprocessors, int m, int n, int k, float alpha, const float* A,
                                        const TensorMap& B, float beta, float* C, float4* sums_of_pieces,
                                        Count* arrivals) {
    // A: [m, k]   B: boxes [BK, BN] of [k, n]   C: [m, n]   grid: see Piece   block: THREADS
    // sums_of_pieces: [split tile, piece, FLOAT4S, THREADS]   arrivals: [split tile]
    if (alpha == 0.0f) {
        k = 0;  // as in BLAS: A and B are not read
    }
    extern __shared__ __align__(128) float4 dynamic_shared[];
    float* Bs = reinterpret_cast<float*>(dynamic_shared);              // [2][BK][BN]: [slot, p, column of C]
    float* As = Bs + 2 * BK * BN;                                      // [2][BK][BM]: [slot, p, row of C]
    Barrier* arrived = reinterpret_cast<Barrier*>(As + 2 * BK * BM);  // [2]: [slot] of B
    __shared__ bool last_arrived;

    const int cols = n / BN;
    if (int(gridDim.x) < cols * (m / BM)) {
        __trap();  // tiles would be left out
    }
    const Piece piece(cols * (m / BM), k / BK, multiprocessors);
    if (piece.pieces == 0) {
        return;
    }
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
    // Partial sums are stored without alpha, which could make halves overflow whose sum does not. The product with a
    // factor that may be 1 moves them to registers of their own: stored directly, they would bind ptxas to quads.
    const float factor = piece.pieces == 1 ? alpha : 1.0f;
    const int tiles = piece.to - piece.from;  // along K
    if (tiles > 0) {
        copy_b(0, 0);
        load_a();
        store_a(0);
        __syncthreads();  // the barriers are initialised, and A is stored
        barrier_wait(&arrived[0], 0);
    }
    read_fragments(0, 0, 0);  // if there is no tile: of nothing, and never used

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
    float4(*partial)[FLOAT4S][THREADS] =  // [piece][FLOAT4S][THREADS] of this tile
        reinterpret_cast<float4(*)[FLOAT4S][THREADS]>(sums_of_pieces) + piece.cut_tile * piece.pieces;
#pragma unroll
    for (int i = 0; i < WMITER * TM; ++i) {
#pragma unroll
        for (int j = 0; j < WNITER * TN; j += 4) {
            const float4 sum = {factor * sums[i][j + 0], factor * sums[i][j + 1],  //
                                factor * sums[i][j + 2], factor * sums[i][j + 3]};
            if (piece.pieces == 1) {
                finish(i, j, sum);
            } else {
                partial[piece.index][(i * WNITER * TN + j) / 4][threadIdx.x] = sum;
            }
        }
    }
    if (piece.pieces > 1 && comes_last(piece, arrivals, &last_arrived)) {
        for (int first = 0; first < FLOAT4S; first += AT_ONCE) {
            float4 total[AT_ONCE] = {};
#pragma unroll 1
            for (int other = 0; other < piece.pieces; ++other) {
#pragma unroll
                for (int f = 0; f < AT_ONCE; ++f) {
                    const float4 part = __ldcg(&partial[other][first + f][threadIdx.x]);
                    total[f].x += part.x, total[f].y += part.y, total[f].z += part.z, total[f].w += part.w;
                }
            }
#pragma unroll
            for (int f = 0; f < AT_ONCE; ++f) {
                const float4 sum = {alpha * total[f].x, alpha * total[f].y, alpha * total[f].z, alpha * total[f].w};
                finish((first + f) / (WNITER * TN / 4), (first + f) % (WNITER * TN / 4) * 4, sum);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
cut(int m, int n, int k, float alpha, const float* A, const __grid_constant__ TensorMap B, float beta, float* C,
    float4* sums_of_pieces, Count* arrivals) {
    cut_for(132, m, n, k, alpha, A, B, beta, C, sums_of_pieces, arrivals);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
cut_any(int multiprocessors, int m, int n, int k, float alpha, const float* A, const __grid_constant__ TensorMap B,
        float beta, float* C, float4* sums_of_pieces, Count* arrivals) {
    cut_for(multiprocessors, m, n, k, alpha, A, B, beta, C, sums_of_pieces, arrivals);
}
