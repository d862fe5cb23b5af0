// R15's passes over A and B: each is read once, and a thread takes eight neighbours along K.
//
// A cluster keeps 16 columns of B in the shared memory of its eight blocks, 512 rows per block, and adds up their norms. What
// does not fit, rows of A beyond ROW numbers and rows of B beyond 4096, is read twice.
// Include it after the product's ring, which declares shared_bytes.

#pragma once

#include "common/cp_async.cuh"
#include "crt/instructions.cuh"
#include "crt/peers.cuh"
#include "crt/residues.cuh"

constexpr int NEIGHBOURS = 8;  // along K, whose residues a thread stores at once

// Residues of neighbours, modulo each number: those of the i-th go to to[i * stride].
template <int I = 0>
__device__ __forceinline__ void store_residues(const Integer (&x)[NEIGHBOURS], uint2* to, size_t stride) {
    if constexpr (I < COUNT) {
        constexpr int P = MODULI[I];
        const Word left = bytes(residue<P>(x[0]), residue<P>(x[1]), residue<P>(x[2]), residue<P>(x[3]));
        const Word right = bytes(residue<P>(x[4]), residue<P>(x[5]), residue<P>(x[6]), residue<P>(x[7]));
        __stcs(&to[I * stride], make_uint2(left, right));  // the product reads it when the L2 has long been full of others
        store_residues<I + 1>(x, to, stride);
    }
}

// Neighbours as integers. pairs: the first two; the next two are `stride` pairs further on
__device__ __forceinline__ void load_integers(Integer (&whole)[NEIGHBOURS], const double2* pairs, int stride, Scale s) {
#pragma unroll
    for (int i = 0; i < NEIGHBOURS / 2; ++i) {
        const double2 x = pairs[i * stride];
        whole[2 * i] = integer(x.x, s), whole[2 * i + 1] = integer(x.y, s);
    }
}

// Elements 2 i and 2 i + 1 of a row of k, zeros beyond.
__device__ __forceinline__ double2 load_pair(const double* row, int i, int k) {
    if (k % 2 == 0 && 2 * i < k) {
        return reinterpret_cast<const double2*>(row)[i];
    }
    return make_double2(2 * i < k ? row[2 * i] : 0.0, 2 * i + 1 < k ? row[2 * i + 1] : 0.0);
}

constexpr int ROW = 24 * 1024;  // numbers of a row that are kept in shared memory

// A: [m, k]   residues: COUNT x [m, pitch]   grid: m   shared memory: a row, if it fits
extern "C" __global__ void __launch_bounds__(512, 3) row_pass(const double* a, int* exponents, signed char* residues,
                                                              int m, int k) {
    __shared__ int chosen;
    double2* const kept = reinterpret_cast<double2*>(shared_bytes);  // first pairs of all neighbours, then second ones, ...
    const double* row = a + static_cast<size_t>(blockIdx.x) * k;
    const int groups = pitch(k) / NEIGHBOURS;
    const bool keeps = k <= ROW;
    Norm norm{};
    for (int i = threadIdx.x; i < groups * (NEIGHBOURS / 2); i += blockDim.x) {
        const double2 x = load_pair(row, i, k);
        include(norm, x.x);
        include(norm, x.y);
        if (keeps) {
            kept[i % (NEIGHBOURS / 2) * groups + i / (NEIGHBOURS / 2)] = x;
        }
    }
    norm = over_block(norm);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = chosen = exponent(norm, k);
    }
    __syncthreads();
    const Scale s = scale(chosen);
    uint2* to = reinterpret_cast<uint2*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int group = threadIdx.x; group < groups; group += blockDim.x) {
        Integer whole[NEIGHBOURS];
        if (keeps) {
            load_integers(whole, &kept[group], groups, s);
        } else {
            double2 again[NEIGHBOURS / 2];
#pragma unroll
            for (int i = 0; i < NEIGHBOURS / 2; ++i) {
                again[i] = load_pair(row, group * (NEIGHBOURS / 2) + i, k);
            }
            load_integers(whole, again, 1, s);
        }
        store_residues(whole, to + group, static_cast<size_t>(m) * groups);
    }
}

constexpr int PEERS = 8;             // blocks of a cluster
constexpr int COLUMNS = 16;          // of B, that a cluster takes
constexpr int KEPT = 512;            // rows of them that a block keeps
constexpr int COLUMN_THREADS = 256;  // of a block
constexpr int LINE = KEPT + 2;       // doubles from one kept column to the next: no bank conflicts
constexpr int GROUPS_KEPT = KEPT / NEIGHBOURS;

// B: [k, n]   residues: COUNT x [n, pitch]   grid: PEERS * (n / COLUMNS, rounded up), in clusters of PEERS
// shared memory: [COLUMNS, LINE] doubles
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
column_pass(const double* b, int* exponents, signed char* residues, int n, int k) {
    __shared__ Norm warps[COLUMN_THREADS / 32][COLUMNS];
    __shared__ Norm sums[COLUMNS];
    __shared__ int chosen[COLUMNS];
    double* const kept = reinterpret_cast<double*>(shared_bytes);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = blockIdx.x / PEERS * COLUMNS, rank = blockIdx.x % PEERS;
    // A warp loads two rows at a time: half of it 8 columns of both, which lie in different banks once they are kept.
    const int column = lane / 16 * 8 + lane % 8, odd = lane / 8 % 2;
    // Of a column, first pairs of all neighbours, then second ones, ...
    const auto place = [&](int row) {
        return &kept[column * LINE + row % NEIGHBOURS / 2 * (2 * GROUPS_KEPT) + row / NEIGHBOURS * 2 + row % 2];
    };
    const auto start_of = [&](int chunk) { return (chunk * PEERS + rank) * KEPT; };
    const auto load = [&](int chunk) {
        const int start = start_of(chunk);
#pragma unroll 8
        for (int row = 2 * warp + odd; row < KEPT; row += 2 * (COLUMN_THREADS / 32)) {
            const bool inside = start + row < k && first + column < n;
            copy8(place(row), inside ? &b[static_cast<size_t>(start + row) * n + first + column] : b, inside);
        }
        copy_commit();
        copy_wait<0>();
    };

    // The first chunk of rows is loaded last, and stays.
    const int chunks = (k + PEERS * KEPT - 1) / (PEERS * KEPT);
    Norm norm{};
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
        load(chunk);
#pragma unroll 4
        for (int row = 2 * warp + odd; row < KEPT; row += 2 * (COLUMN_THREADS / 32)) {
            include(norm, *place(row));  // what this thread itself loaded
        }
    }
    norm = join(norm, {__shfl_xor_sync(~0u, norm.squares, 8), __shfl_xor_sync(~0u, norm.biased, 8)});
    if (odd == 0) {
        warps[warp][column] = norm;
    }
    __syncthreads();
    if (threadIdx.x < COLUMNS) {
        for (int w = 1; w < COLUMN_THREADS / 32; ++w) {
            norm = join(w == 1 ? warps[0][threadIdx.x] : norm, warps[w][threadIdx.x]);
        }
        sums[threadIdx.x] = norm;
    }
    cluster_sync();
    if (threadIdx.x < COLUMNS) {
        norm = norm_of_peer(&sums[threadIdx.x], 0);
        for (int peer = 1; peer < PEERS; ++peer) {
            norm = join(norm, norm_of_peer(&sums[threadIdx.x], peer));
        }
        chosen[threadIdx.x] = exponent(norm, k);
        if (rank == 0 && first + threadIdx.x < n) {
            exponents[first + threadIdx.x] = chosen[threadIdx.x];
        }
    }
    cluster_arrive();  // it has read what its peers hold
    __syncthreads();

    const int groups = pitch(k) / NEIGHBOURS;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        if (chunk > 0) {
            __syncthreads();  // all have stored the one before
            load(chunk);
            __syncthreads();
        }
        const int start = start_of(chunk) / NEIGHBOURS;
        for (int j = warp; j < min(COLUMNS, n - first); j += COLUMN_THREADS / 32) {
            const Scale t = scale(chosen[j]);
            uint2* to = reinterpret_cast<uint2*>(residues + static_cast<size_t>(first + j) * pitch(k));
#pragma unroll 1
            for (int group = lane; group < min(GROUPS_KEPT, groups - start); group += 32) {
                Integer whole[NEIGHBOURS];
                load_integers(whole, reinterpret_cast<const double2*>(&kept[j * LINE]) + group, GROUPS_KEPT, t);
                store_residues(whole, to + start + group, static_cast<size_t>(n) * groups);
            }
        }
    }
    cluster_wait();  // its peers have read what it holds
}
