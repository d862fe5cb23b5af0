// Level R10: a bound for every element.
//
// New:        |C - AB| <= gamma |A||B|, element by element, whatever the input. Powers of two along k even out A and B
//             first. One e5m2 product of magnitudes, rounded down, says for each tile of C how many moduli it needs; the
//             device takes 13 to 16 for all tiles, or multiplies the tiles that ask for more in double, on tensor cores,
//             as it does those with an Inf or a NaN. The host launches the same kernels whatever the device decides.
// Parameters: the product as level R7; the tiles in double 128 x 96 x 16, 5 stages.
// Expected:   one product more than R7 and a byte written and read an element; 14 moduli instead of 15 for elements of
//             like size. NOTES.md has the inequalities and the count.
// Takes:      any m, n and k up to 2^16, any leading dimension, alpha and beta; either operand transposed.

#ifndef NUMBERS
#define NUMBERS 16
#endif
#define UNSIGNED 1

#include "crt/counted.cuh"
#include "crt/listed.cuh"
#include "crt/measures.cuh"
#include "crt/native.cuh"

constexpr int ANY = 2147483647;  // the inner exponent of a k of which no sample says anything
constexpr int SLACK = 6;         // inner exponents that differ by no more are left alone

// plan: moduli (0: every tile is multiplied in double), tiles that take residues, tiles in double, whether all inner
// exponents are zero; groups of rows and of columns in which a glance found elements that no number of moduli helps.
constexpr int PLAN_COUNT = 0, PLAN_TILES = 1, PLAN_NATIVE = 2, PLAN_FLAT = 3, PLAN_ROWS = 4, PLAN_COLUMNS = 5;
constexpr int GROUPS = 8, EACH = 4, LINES = 2 * EACH;  // groups that the glance takes, and rows and columns of each
constexpr int GLANCERS = 384;
constexpr int MANY = 6;  // groups of rows, and of columns, that fail before the rest is not looked at

// Whether a glance says that every tile will end in double.
__device__ __forceinline__ bool hopeless(const int* plan) {
    return __popc(plan[PLAN_ROWS]) >= MANY && __popc(plan[PLAN_COLUMNS]) >= MANY;
}

__device__ __forceinline__ int rounded_down(long long x, long long by) {
    return static_cast<int>(x >= 0 ? x / by : -((-x + by - 1) / by));
}

// Inner exponents: half of what the mean exponent of B's row h is above that of A's column h, of 64 samples each.
// grid: k / 32, rounded up   block: 256. Element (i, h) of A is a[i row_a + h depth_a], (h, j) of B b[h depth_b + j column_b].
extern "C" __global__ void __launch_bounds__(256)
sample_inner(const double* a, int row_a, int depth_a, const double* b, int depth_b, int column_b, int* inner, int m, int n,
             int k) {
    __shared__ int sums[4][256];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32, h = blockIdx.x * 32 + lane;
    int of_a = 0, of_b = 0, seen_a = 0, seen_b = 0;
    if (h < k) {
#pragma unroll
        for (int q = part; q < SAMPLES; q += 8) {
            const double x = a[static_cast<size_t>(sampled(q, m)) * row_a + static_cast<size_t>(h) * depth_a];
            const double y = b[static_cast<size_t>(h) * depth_b + static_cast<size_t>(sampled(q, n)) * column_b];
            const int e = sampled_exponent(x, 0), f = sampled_exponent(y, 0);
            of_a += e == NOTHING ? 0 : e, seen_a += e != NOTHING;
            of_b += f == NOTHING ? 0 : f, seen_b += f != NOTHING;
        }
    }
    sums[0][threadIdx.x] = of_a, sums[1][threadIdx.x] = seen_a, sums[2][threadIdx.x] = of_b, sums[3][threadIdx.x] = seen_b;
    __syncthreads();
    if (part == 0 && h < k) {
        long long all[4] = {};
        for (int q = 0; q < 8; ++q) {
            for (int i = 0; i < 4; ++i) {
                all[i] += sums[i][lane + 32 * q];
            }
        }
        const bool known = all[1] > 0 && all[3] > 0;
        inner[h] = known ? rounded_down(all[2] * all[1] - all[0] * all[3], 2 * all[1] * all[3]) : ANY;
    }
}

// Centre the inner exponents, or leave them out if they are about alike. One block of 1024.
extern "C" __global__ void __launch_bounds__(1024) settle_inner(int* inner, int* plan, int k) {
    __shared__ int least[1024];
    __shared__ int most[1024];
    int low = ANY, high = -ANY;
    for (int h = threadIdx.x; h < k; h += 1024) {
        const int e = inner[h];
        low = min(low, e), high = max(high, e == ANY ? -ANY : e);
    }
    least[threadIdx.x] = low, most[threadIdx.x] = high;
    __syncthreads();
    for (int step = 512; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            least[threadIdx.x] = min(least[threadIdx.x], least[threadIdx.x + step]);
            most[threadIdx.x] = max(most[threadIdx.x], most[threadIdx.x + step]);
        }
        __syncthreads();
    }
    low = least[0], high = most[0];
    const bool flat = low == ANY || high - low <= SLACK;
    const int middle = flat ? 0 : rounded_down(static_cast<long long>(low) + high, 2);
    for (int h = threadIdx.x; h < pitch(k); h += 1024) {
        const int e = h < k ? inner[h] : ANY;
        inner[h] = flat || e == ANY ? 0 : e - middle;
    }
    if (threadIdx.x == 0) {
        plan[PLAN_FLAT] = flat;
        plan[PLAN_ROWS] = plan[PLAN_COLUMNS] = 0;
    }
}

// gamma R' of so many moduli: the largest ratio that an element may have, and double is not needed. loosened: gamma is
// 2 sqrt(k) u times 2^loosened. 2^-18 k: sums of e5m2 may be too large by that, if steps of 32 products are rounded to 14
// bits and not cut off.
__device__ __forceinline__ double limit_of(int count, int k, int loosened) {
    const double root = sqrt(static_cast<double>(k)), margin = (1.0 + k * 0x1p-18) * (1.0 + 0x1p-8);
    return 2.0 * root * 0x1p-53 * power(1023 + loosened) * (radius_of(count) - 0.51 * root) / margin;
}

// 32 rows and 32 columns, spread evenly, as bound_tiles will judge them, but for their exact |A||B|. Each block has EACH
// rows and columns and notes its groups if an element fails with all moduli. grid: GROUPS x GROUPS   block: GLANCERS
extern "C" __global__ void __launch_bounds__(GLANCERS)
glance(const double* a, int row_a, int depth_a, const double* b, int depth_b, int column_b, const int* inner, int* plan,
       int m, int n, int k, int loosened, int eager) {
    constexpr int WIDE = GLANCERS / 32;
    __shared__ Measure measures[WIDE][LINES];
    __shared__ double sums[WIDE][EACH * EACH];
    __shared__ int tops[LINES];
    if (eager) {
        return;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_row = blockIdx.x * EACH, first_column = blockIdx.y * EACH;
    const auto element = [&](int line, int h) {  // of a row of A, or of a column of B
        const int q = line < EACH ? first_row + line : first_column + line - EACH, of = line < EACH ? m : n;
        const size_t place = static_cast<size_t>(q) * of / (GROUPS * EACH);
        return line < EACH ? a[place * row_a + static_cast<size_t>(h) * depth_a]
                           : b[static_cast<size_t>(h) * depth_b + place * column_b];
    };
    if (warp < LINES) {
        int top = NOTHING;
        for (int q = lane; q < SAMPLES; q += 32) {
            const int h = sampled(q, k);
            top = max(top, sampled_exponent(element(warp, h), warp < EACH ? inner[h] : -inner[h]));
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            top = max(top, __shfl_xor_sync(~0u, top, step));
        }
        if (lane == 0) {
            tops[warp] = top;
        }
    }
    __syncthreads();
    Measure measure[LINES];
    double products[EACH][EACH] = {};
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
        measure[line] = no_measure();
    }
#pragma unroll 1
    for (int h = threadIdx.x; h < k; h += GLANCERS) {
        double x[LINES];
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            const int shift = line < EACH ? inner[h] : -inner[h], unit = unit_of(tops[line]);
            const Scale down = shifted_scale(1023 - unit, shift);
            x[line] = include(measure[line], element(line, h), shift, down, low_enough(unit));
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                products[i][j] = fma(x[i], x[EACH + j], products[i][j]);
            }
        }
    }
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
        measure[line] = over_warp(measure[line]);
        if (lane == 0) {
            measures[warp][line] = measure[line];
        }
    }
#pragma unroll
    for (int i = 0; i < EACH * EACH; ++i) {
        double sum = products[i / EACH][i % EACH];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_xor_sync(~0u, sum, step);
        }
        if (lane == 0) {
            sums[warp][i] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < EACH * EACH) {
        double magnitude = 0.0, norms[2], ones[2];
        for (int w = 0; w < WIDE; ++w) {
            magnitude += sums[w][threadIdx.x];
        }
        bool known = true;
        for (int side = 0; side < 2; ++side) {
            const int line = side ? EACH + threadIdx.x % EACH : threadIdx.x / EACH;
            Measure whole = measures[0][line];
            for (int w = 1; w < WIDE; ++w) {
                whole = join(whole, measures[w][line]);
            }
            const Summary all = summary(whole, tops[line], k);
            const bool exact = all.low + exponent_of(all, Counted<LEAST>::RADIUS, k) >= 0;
            known = known && all.low != SPOILED;
            norms[side] = exact ? 0.0 : all.size, ones[side] = whole.ones;
        }
        if (known && norms[0] * ones[1] + norms[1] * ones[0] > limit_of(COUNT, k, loosened) * magnitude) {
            atomicOr(&plan[PLAN_ROWS], 1 << blockIdx.x);
            atomicOr(&plan[PLAN_COLUMNS], 1 << blockIdx.y);
        }
    }
}

// Columns 4 quad to 4 quad + 3 of a row of k numbers, zeros beyond; `paired`: 16 bytes may be loaded at once.
__device__ __forceinline__ void load_four(double (&x)[4], const double* row, int quad, int k, bool paired) {
    if (paired && 4 * quad + 3 < k) {
        const double2 left = reinterpret_cast<const double2*>(row)[2 * quad];
        const double2 right = reinterpret_cast<const double2*>(row)[2 * quad + 1];
        x[0] = left.x, x[1] = left.y, x[2] = right.x, x[3] = right.y;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = 4 * quad + i < k ? row[4 * quad + i] : 0.0;
        }
    }
}

__device__ __forceinline__ bool is_paired(const void* pointer, int ld) {
    return ld % 2 == 0 && reinterpret_cast<size_t>(pointer) % 16 == 0;
}

__device__ __forceinline__ Measure over_block(Measure measure, Measure* warps) {
    measure = over_warp(measure);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = measure;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) {
            measure = join(measure, warps[w]);
        }
    }
    return measure;
}

// Of an operand whose rows lie along k: A, or a transposed B. sign: of the inner exponents, 1 for A and -1 for B.
// grid: rows   block: 256   coarse: [rows, pitch] of e5m2
extern "C" __global__ void __launch_bounds__(256)
measure_rows(const double* __restrict__ x, int ld, const int* inner, int sign, const int* plan, unsigned char* coarse,
             Summary* summaries, Gauge* gauges, int k) {
    __shared__ Measure warps[8];
    __shared__ int largest;
    if (hopeless(plan)) {
        return;
    }
    const double* row = x + static_cast<size_t>(blockIdx.x) * ld;
    const bool paired = is_paired(x, ld), flat = plan[PLAN_FLAT];
    if (threadIdx.x < 32) {
        const int h = sampled(threadIdx.x, k), g = sampled(threadIdx.x + 32, k);
        int top = max(sampled_exponent(row[h], sign * inner[h]), sampled_exponent(row[g], sign * inner[g]));
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            top = max(top, __shfl_xor_sync(~0u, top, step));
        }
        if (threadIdx.x == 0) {
            largest = top;
        }
    }
    __syncthreads();
    const int top = largest, base = offset_below(top), unit = unit_of(top), enough = low_enough(unit);
    const Scale even = shifted_scale(1023 - unit, 0);
    Word* __restrict__ to = reinterpret_cast<Word*>(coarse + static_cast<size_t>(blockIdx.x) * pitch(k));
    Measure measure = no_measure();
    const auto walk = [&](auto evened) {  // whether inner exponents are added
#pragma unroll 2
        for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += 256) {
            double four[4];
            load_four(four, row, quad, k, paired);
            Word byte[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int shift = evened.value ? sign * inner[4 * quad + i] : 0;
                include(measure, four[i], shift, evened.value ? shifted_scale(1023 - unit, shift) : even, enough);
                byte[i] = coarse_byte(four[i], shift - base);
            }
            to[quad] = bytes(byte[0], byte[1], byte[2], byte[3]);
        }
    };
    if (flat) {
        walk(Index<0>{});
    } else {
        walk(Index<1>{});
    }
    measure = over_block(measure, warps);
    if (threadIdx.x == 0) {
        const Summary all = summary(measure, top, k);
        summaries[blockIdx.x] = all;
        gauges[blockIdx.x] = gauge(measure, all, base, Counted<LEAST>::RADIUS, k);
    }
}

constexpr int CHUNK = 256;  // numbers of a column that a block measures
constexpr int DEPTH = 128;  // numbers of a column that a block turns to residues

// Of an operand whose columns lie along k: B, or a transposed A. partial: [k / CHUNK, columns]   largest: [columns], the
// exponents of their largest samples
// grid: (columns / 32, k / CHUNK), rounded up   block: 256
extern "C" __global__ void __launch_bounds__(256)
measure_columns(const double* __restrict__ x, int ld, const int* inner, int sign, const int* plan, unsigned char* coarse,
                Measure* partial, int* largest, int columns, int k) {
    __shared__ Measure rows[256];
    __shared__ int tops[256];
    alignas(4) __shared__ unsigned char turned[32][CHUNK + 4];
    if (hopeless(plan)) {
        return;
    }
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    const int depth = blockIdx.y * CHUNK, end = min(k - depth, CHUNK);
    const bool flat = plan[PLAN_FLAT], inside = column < columns;
    int top = NOTHING;
    if (inside) {
#pragma unroll
        for (int q = part; q < SAMPLES; q += 8) {
            const int h = sampled(q, k);
            top = max(top, sampled_exponent(x[static_cast<size_t>(h) * ld + column], sign * inner[h]));
        }
    }
    tops[threadIdx.x] = top;
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        top = max(top, tops[lane + 32 * q]);
    }
    const int base = offset_below(top), unit = unit_of(top), enough = low_enough(unit);
    const Scale even = shifted_scale(1023 - unit, 0);
    Measure measure = no_measure();
    const auto walk = [&](auto evened) {  // whether inner exponents are added
#pragma unroll 8
        for (int h = part; h < CHUNK; h += 8) {
            const bool there = inside && h < end;
            const double y = there ? x[static_cast<size_t>(depth + h) * ld + column] : 0.0;
            const int shift = evened.value && there ? sign * inner[depth + h] : 0;
            include(measure, y, shift, evened.value ? shifted_scale(1023 - unit, shift) : even, enough);
            turned[lane][h] = static_cast<unsigned char>(coarse_byte(y, shift - base));
        }
    };
    if (flat) {
        walk(Index<0>{});
    } else {
        walk(Index<1>{});
    }
    rows[threadIdx.x] = measure;
    __syncthreads();
    if (part == 0 && inside) {
        for (int q = 1; q < 8; ++q) {
            measure = join(measure, rows[lane + 32 * q]);
        }
        partial[static_cast<size_t>(blockIdx.y) * columns + column] = measure;
        if (blockIdx.y == 0) {
            largest[column] = top;
        }
    }
    for (int c = part; c < min(32, columns - static_cast<int>(blockIdx.x) * 32); c += 8) {
        const size_t row = static_cast<size_t>(blockIdx.x * 32 + c) * pitch(k) + depth;
        for (int quad = lane; quad < CHUNK / 4 && depth + 4 * quad < pitch(k); quad += 32) {
            const unsigned char* four = &turned[c][4 * quad];
            reinterpret_cast<Word*>(coarse + row)[quad] = *reinterpret_cast<const Word*>(four);
        }
    }
}

// grid: columns / 128, rounded up   block: 128
extern "C" __global__ void __launch_bounds__(128)
join_columns(const int* plan, const Measure* partial, const int* largest, Summary* summaries, Gauge* gauges, int columns, int k) {
    const int column = blockIdx.x * 128 + threadIdx.x;
    if (column < columns && !hopeless(plan)) {
        Measure measure = partial[column];
#pragma unroll 4
        for (int chunk = 1; chunk < (k + CHUNK - 1) / CHUNK; ++chunk) {
            measure = join(measure, partial[static_cast<size_t>(chunk) * columns + column]);
        }
        const int top = largest[column];
        const Summary all = summary(measure, top, k);
        summaries[column] = all;
        gauges[column] = gauge(measure, all, offset_below(top), Counted<LEAST>::RADIUS, k);
    }
}

// The larger of `most` and what the error of an element may be to what it is held against, but for RADIUS and gamma: Inf
// where nothing is known, 0 where nothing can be lost. Few elements come to the division.
__device__ __forceinline__ float larger_ratio(float most, const Gauge& x, const Gauge& y, float least) {
    const float error = fmaf(x.norm, y.ones, y.norm * x.ones);
    if (!(error <= most * least) && error != 0.0f) {
        most = fmaxf(most, error < 1e38f ? error / least : __int_as_float(0x7F800000));  // NaN is not below
    }
    return most;
}

// worst: [tiles, 4]: the largest ratio of a warp's elements, in the order of tile_at. Any number of blocks of THREADS
extern "C" __global__ void __launch_bounds__(THREADS, 1)
bound_tiles(const __grid_constant__ TensorMap coarse_a, const __grid_constant__ TensorMap coarse_b, const int* plan,
            const Gauge* gauges_a, const Gauge* gauges_b, float* worst, int m, int n, int k) {
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tiles = hopeless(plan) ? 0 : rows * cols;
    const auto place = [&](int t) {
        const Tile tile = tile_at(t, rows, cols);
        return Corner{tile.row * BM, tile.col * BN};
    };
    const auto finish = [&](const float (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const Tile tile = tile_at(t, rows, cols);
        float most = 0.0f;
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int row = tile.row * BM + half * 64 + warp * 16 + lane / 4;
            const Gauge none{0.0f, 0.0f};
            const Gauge upper = row < m ? gauges_a[row] : none, lower = row + 8 < m ? gauges_a[row + 8] : none;
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int column = tile.col * BN + 8 * j + lane % 4 * 2 + e;
                    if (column < n) {
                        const Gauge y = gauges_b[column];
                        most = larger_ratio(most, upper, y, sums[half][4 * j + e]);
                        most = larger_ratio(most, lower, y, sums[half][4 * j + 2 + e]);
                    }
                }
            }
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        }
        if (lane == 0) {
            worst[4 * t + warp] = most;
        }
    };
    walk_in_turn<float>(coarse_a, coarse_b, tiles, (k + BK - 1) / BK, place, finish);
}

// What an H200 takes for its parts, in microseconds a unit: an estimate on which only the speed depends.
constexpr double TIME_8_BIT = 1.0 / 1.42e9;   // of an 8-bit multiplication or addition
constexpr double TIME_DOUBLE = 1.0 / 52.0e6;  // of one in double where all are, which cuBLAS may do
constexpr double TIME_TILES = 1.0 / 34.0e6;   // of one in double, of single tiles
constexpr double TIME_BYTE = 1.0 / 2.9e6;     // of a byte of residues

// How many moduli, which tiles take residues, and which are multiplied in double: those whose bound asks for more. The
// choice is the one that should take the least time or, if `eager`, the one with the most tiles of residues.
// kinds: [tile rows, tile columns], 1 in double   list, natives: row and column of a tile, 16 bits each. One block of 1024
extern "C" __global__ void __launch_bounds__(1024)
decide(const float4* worst, int* plan, int* list, int* natives, unsigned char* kinds, int m, int n, int k, int loosened,
       int eager) {
    __shared__ unsigned needs[CHOICES + 1];
    __shared__ int before[1024];
    __shared__ int chosen;
    __shared__ float most;
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tiles = rows * cols;
    const int each = (tiles + 1023) / 1024, from = min(tiles, static_cast<int>(threadIdx.x) * each);
    const int to = min(tiles, from + each);
    if (threadIdx.x <= CHOICES) {
        needs[threadIdx.x] = 0;
    }
    __syncthreads();
    const bool all_fail = hopeless(plan);
    float limits[CHOICES];
#pragma unroll
    for (int i = 0; i < CHOICES; ++i) {
        limits[i] = static_cast<float>(limit_of(LEAST + i, k, loosened));
    }
    const auto largest = [&](int t) {
        if (all_fail) {
            return __int_as_float(0x7F800000);
        }
        const float4 four = worst[t];
        return fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
    };
    for (int t = from; t < to; ++t) {
        const float x = largest(t);
        int need = 0;
#pragma unroll
        for (int i = 0; i < CHOICES; ++i) {
            need += !(x <= limits[i]);
        }
        atomicAdd(&needs[need], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const double work = 2.0 * m * n * k, share = 1.0 / tiles;
        const double elements = static_cast<double>(m) * k + static_cast<double>(k) * n, out = static_cast<double>(m) * n;
        double least = eager ? 0.0 : work * TIME_DOUBLE;
        unsigned good = 0;
        chosen = 0, most = -1.0f;
        for (int i = 0; i < CHOICES; ++i) {
            good += needs[i];
            const int count = LEAST + i;
            const double time = (1.0 - good * share) * work * TIME_TILES + good * share * count * work * TIME_8_BIT +
                                (count + 8) * (elements + good * share * out) * TIME_BYTE;
            const double cost = eager ? -static_cast<double>(good) : time;
            if (good > 0 && cost < least) {
                least = cost, chosen = count, most = limits[i];
            }
        }
    }
    __syncthreads();
    int own = 0;  // tiles in double
    for (int t = from; t < to; ++t) {
        own += !(largest(t) <= most);
    }
    before[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
        const int other = threadIdx.x >= step ? before[threadIdx.x - step] : 0;
        __syncthreads();
        before[threadIdx.x] += other;
        __syncthreads();
    }
    int place = before[threadIdx.x] - own;
    for (int t = from; t < to; ++t) {
        const Tile tile = tile_at(t, rows, cols);
        const bool in_double = !(largest(t) <= most);
        kinds[tile.row * cols + tile.col] = in_double;
        (in_double ? natives[place] : list[t - place]) = tile.row << 16 | tile.col;
        place += in_double;
    }
    if (threadIdx.x == 1023) {
        plan[PLAN_COUNT] = chosen, plan[PLAN_TILES] = tiles - before[1023], plan[PLAN_NATIVE] = before[1023];
    }
}

// Residues of four neighbours along k, 4 quad onwards.
__device__ __forceinline__ void store_quad(const double (&x)[4], int s, const int* inner, int sign, bool flat, int quad,
                                           int count, Word* to, size_t stride) {
    Integer whole[4];
    if (flat) {
        const Scale one = shifted_scale(s, 0);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            whole[i] = integer(x[i], one);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            whole[i] = integer(x[i], shifted_scale(s, sign * inner[4 * quad + i]));
        }
    }
    store_counted(whole, count, to, stride);
}

// As measure_rows. residues: COUNT x [rows, pitch], of which the plan's number is written   grid: rows   block: 256
extern "C" __global__ void __launch_bounds__(256)
rows_to_residues(const double* x, int ld, const int* inner, int sign, const int* plan, const Summary* summaries,
                 int* exponents, unsigned char* residues, int rows, int k) {
    const int count = plan[PLAN_COUNT];
    if (count == 0) {
        return;
    }
    __shared__ int chosen;
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = chosen = exponent_of(summaries[blockIdx.x], radius_of(count), k);
    }
    __syncthreads();
    const int s = chosen;
    const double* row = x + static_cast<size_t>(blockIdx.x) * ld;
    const bool paired = is_paired(x, ld), flat = plan[PLAN_FLAT];
    Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(blockIdx.x) * pitch(k));
    for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += 256) {
        double four[4];
        load_four(four, row, quad, k, paired);
        store_quad(four, s, inner, sign, flat, quad, count, to + quad, static_cast<size_t>(rows) * pitch(k) / 4);
    }
}

// As measure_columns; a tile is turned round in shared memory. grid: (columns / 32, k / DEPTH), rounded up   block: 256
extern "C" __global__ void __launch_bounds__(256)
columns_to_residues(const double* x, int ld, const int* inner, int sign, const int* plan, const Summary* summaries,
                    int* exponents, unsigned char* residues, int columns, int k) {
    __shared__ double tile[32][DEPTH + 2];
    __shared__ int chosen[32];
    const int count = plan[PLAN_COUNT];
    if (count == 0) {
        return;
    }
    const bool flat = plan[PLAN_FLAT];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = blockIdx.x * 32, depth = blockIdx.y * DEPTH;
#pragma unroll
    for (int i = 0; i < DEPTH / 8; ++i) {
        const int h = warp + 8 * i;
        const bool inside = depth + h < k && column + lane < columns;
        tile[lane][h] = inside ? x[static_cast<size_t>(depth + h) * ld + column + lane] : 0.0;
    }
    if (warp == 0 && column + lane < columns) {
        chosen[lane] = exponent_of(summaries[column + lane], radius_of(count), k);
        if (depth == 0) {
            exponents[column + lane] = chosen[lane];
        }
    }
    __syncthreads();
    if (depth + 4 * lane < pitch(k)) {
        for (int c = warp; c < min(32, columns - column); c += 8) {
            const int t = chosen[c];
            const double* of_column = &tile[c][4 * lane];
            const double four[4] = {of_column[0], of_column[1], of_column[2], of_column[3]};
            Word* to = reinterpret_cast<Word*>(residues + static_cast<size_t>(column + c) * pitch(k) + depth);
            store_quad(four, t, inner, sign, flat, depth / 4 + lane, count, to + lane,
                       static_cast<size_t>(columns) * pitch(k) / 4);
        }
    }
}

// Any number of blocks of THREADS   residues: [COUNT, tile row, tile column, 16 rows, part, lane] of four words, as in
// in_turn.cuh, of the tiles in `list`
extern "C" __global__ void __launch_bounds__(THREADS, 1)
multiply(const __grid_constant__ TensorMap residues_a, const __grid_constant__ TensorMap residues_b, const int* plan,
         const int* list, uint4* residues, int m, int n, int k) {
    const int rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tiles = max(1, plan[PLAN_TILES]);
    const auto place = [&](int t) {
        const int tile = list[t % tiles], i = t / tiles;
        return Corner{i * m + (tile >> 16) * BM, i * n + (tile & 0xFFFF) * BN};
    };
    const auto finish = [&](const int (&sums)[HALVES][BN / 2], int t, int warp, int lane) {
        const int tile = list[t % tiles], i = t / tiles;
        const size_t at = (static_cast<size_t>(i) * rows + (tile >> 16)) * cols + (tile & 0xFFFF);
        const Modulus p = modulus(i);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            uint4* to = residues + (at * WARPS + half * 4 + warp) * PARTS * 32 + lane;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int* d = &sums[half][part * 16];
                const auto word = [&](int w) {
                    return bytes(residue(d[4 * w], p), residue(d[4 * w + 1], p), residue(d[4 * w + 2], p),
                                 residue(d[4 * w + 3], p));
                };
                to[part * 32] = make_uint4(word(0), word(1), word(2), word(3));
            }
        }
    };
    const int all = plan[PLAN_COUNT] * plan[PLAN_TILES];
    walk_in_turn<int>(residues_a, residues_b, all, (k + BK - 1) / BK, place, finish);
}

// c 2^-(s + t), which may lie far outside double's range.
__device__ __forceinline__ double taken_back(double c, int s, int t) {
    const int e = s + t;
    if (e > -1000 && e < 1000) {
        return c * power(1023 - e);
    }
    return scaled_back(c, max(-4000, min(4000, e)), 0);
}

template <int N>
__device__ __forceinline__ void reconstruct_counted(const uint4* residues, const int* exponents_a, const int* exponents_b,
                                                    double* c, int ldc, int m, int n, int place, int part, int cols,
                                                    double alpha, double beta) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile_row = place / cols, tile_col = place % cols;
    const size_t next = static_cast<size_t>(gridDim.x) * WARPS * 32;  // to the next modulus
    const uint4* from = residues + (static_cast<size_t>(place) * WARPS + warp) * PARTS * 32 + part * 32 + lane;
    uint4 all[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        all[i] = __ldcs(&from[i * next]);
    }
    const int top = tile_row * BM + warp * 16 + lane / 4;
    const bool paired = is_paired(c, ldc);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the four words: eight elements
        double high[8] = {}, low[8] = {};
        weigh_counted<N>(all, half, high, low);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            asm volatile("" : "+d"(high[e]), "+d"(low[e]));  // or the compiler takes two elements at a time all the same
        }
        const int left = tile_col * BN + part * 32 + half * 16 + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < 8; e += 2) {  // pairs of neighbours
            const int row = top + 8 * (e / 2 % 2), column = left + e / 4 * 8;
            if (row < m && column < n) {
                const bool both = column + 1 < n;
                const int s = exponents_a[row], t = exponents_b[column], u = both ? exponents_b[column + 1] : 0;
                double* to = c + static_cast<size_t>(row) * ldc + column;
                const double one = taken_back(settle_counted<N>(high[e], low[e]), s, t);
                const double other = taken_back(settle_counted<N>(high[e + 1], low[e + 1]), s, u);
                if (both && paired) {
                    __stcs(reinterpret_cast<double2*>(to),
                           make_double2(blended(one, alpha, beta, to), blended(other, alpha, beta, to + 1)));
                } else {
                    to[0] = blended(one, alpha, beta, to);
                    if (both) {
                        to[1] = blended(other, alpha, beta, to + 1);
                    }
                }
            }
        }
    }
}

// grid: PARTS * tiles   block: 256: eight warps, those that a tile's residues came from
extern "C" __global__ void __launch_bounds__(256)
reconstruct(const int* plan, const unsigned char* kinds, const uint4* residues, const int* exponents_a,
            const int* exponents_b, double* c, int ldc, int m, int n, double alpha, double beta) {
    const int cols = (n + BN - 1) / BN, place = blockIdx.x / PARTS, part = blockIdx.x % PARTS, count = plan[PLAN_COUNT];
    if (count == 0 || kinds[place]) {
        return;
    }
    const auto with = [&](auto number) {
        reconstruct_counted<decltype(number)::value>(residues, exponents_a, exponents_b, c, ldc, m, n, place, part, cols,
                                                     alpha, beta);
    };
    switch (count) {
        case 13: with(Index<13>{}); break;
        case 14: with(Index<14>{}); break;
        case 15: with(Index<15>{}); break;
        default: with(Index<16>{}); break;
    }
}

// Tiles in double; any number of blocks of NATIVE_THREADS. In the names: whether A and B are as they are (n), [m, k] and
// [k, n] by rows, or transposed (t), [k, m] and [n, k].
extern "C" __global__ void __launch_bounds__(NATIVE_THREADS, 1)
native_nn(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
          int m, int n, int k, double alpha, double beta) {
    multiply_natively<true, false>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(NATIVE_THREADS, 1)
native_nt(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
          int m, int n, int k, double alpha, double beta) {
    multiply_natively<true, true>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(NATIVE_THREADS, 1)
native_tn(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
          int m, int n, int k, double alpha, double beta) {
    multiply_natively<false, false>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(NATIVE_THREADS, 1)
native_tt(const double* a, int lda, const double* b, int ldb, const int* plan, const int* natives, double* c, int ldc,
          int m, int n, int k, double alpha, double beta) {
    multiply_natively<false, true>(a, lda, b, ldb, plan, natives, c, ldc, m, n, k, alpha, beta);
}
