// fp32 cut into SLICES numbers of type Element, the largest first: x 2^s = x_0 + x_1 + ..., each rounded to nearest.
//
// s brings the largest of a line to between 2 and 4, so no slice and no sum overflows, and none that matters is subnormal.
// A tf32 holds 11 bits: two slices leave less than 2^-23 |x|. A bf16 holds 8: three slices are x.

#pragma once

#include "common/wgmma_tf32.cuh"
#include "sgemm/lines.cuh"

// The exponent s of a line by the magnitude of its largest element.
__device__ __forceinline__ int exponent(Word largest) {
    const int biased = largest >> 23;
    return biased == 255 ? SPOILED : 128 - max(biased, 1);
}

// 2^s, or 0 of a line that is spoiled anyway.
__device__ __forceinline__ float scale(int s) {
    return s == SPOILED ? 0.0f : __uint_as_float((s + 127) << 23);
}

// x rounded to an Element; ties go away from zero. |x| < 4, so the carry does not overflow.
template <class Element>
__device__ __forceinline__ float rounded(float x) {
    constexpr Word DROPPED = SAME<Element, bf16> ? 16 : 13;  // bits of fp32's fraction that an Element lacks
    return __uint_as_float((__float_as_uint(x) + (1u << (DROPPED - 1))) & ~((1u << DROPPED) - 1));
}

__device__ __forceinline__ void store_four(tf32* to, const float (&x)[4]) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}
__device__ __forceinline__ void store_four(bf16* to, const float (&x)[4]) {  // upper halves, side by side
    const Word left = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x7632);
    const Word right = __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x7632);
    *reinterpret_cast<uint2*>(to) = make_uint2(left, right);
}

// The slices of four neighbours, already scaled: slice i goes to to[i * next].
template <int SLICES, class Element>
__device__ __forceinline__ void store_slices(float (&x)[4], Element* to, size_t next) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        float held[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            held[i] = rounded<Element>(x[i]);
            x[i] -= held[i];  // exact
        }
        store_four(to + slice * next, held);
    }
}

// Elements from one line of slices to the next: TMA wants multiples of 16 bytes.
__device__ __forceinline__ int pitch(int k) {
    return (k + 7) / 8 * 8;
}

// x: [lines, k], rows ld apart   exponents: [lines]   slices: SLICES x [lines, pitch]   grid: lines   block: 256
template <int SLICES, class Element>
__device__ __forceinline__ void slice_row(const float* x, int ld, int* exponents, Element* slices, int lines, int k) {
    __shared__ Word warps[8];
    const float* line = x + static_cast<size_t>(blockIdx.x) * ld;
    Word largest = 0;
    for (int quad = threadIdx.x; quad < (k + 3) / 4; quad += blockDim.x) {
        float four[4];
        load_quad(four, line, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            largest = max(largest, magnitude(four[i]));
        }
    }
    largest = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = largest;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        largest = max(largest, warps[w]);
    }
    const int s = exponent(largest);
    if (threadIdx.x == 0) {
        exponents[blockIdx.x] = s;
    }
    const float factor = scale(s);
    Element* to = slices + static_cast<size_t>(blockIdx.x) * pitch(k);
    for (int quad = threadIdx.x; quad < pitch(k) / 4; quad += blockDim.x) {
        float four[4];
        load_quad(four, line, quad, k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            four[i] = s == SPOILED ? 0.0f : four[i] * factor;
        }
        store_slices<SLICES>(four, to + 4 * quad, static_cast<size_t>(lines) * pitch(k));
    }
}

// The largest magnitudes of CHUNK elements of 32 columns. x: [k, lines], rows ld apart   peaks: [k / CHUNK, lines]
// grid: (lines / 32, k / CHUNK), rounded up   block: 256
__device__ __forceinline__ void find_peaks(const float* x, int ld, Word* peaks, int lines, int k) {
    __shared__ Word rows[8][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    Word largest = 0;
    if (column < lines) {
        const int end = min(k, (static_cast<int>(blockIdx.y) + 1) * CHUNK);
#pragma unroll 4
        for (int h = blockIdx.y * CHUNK + warp; h < end; h += 8) {
            largest = max(largest, magnitude(x[static_cast<size_t>(h) * ld + column]));
        }
    }
    rows[warp][lane] = largest;
    __syncthreads();
    if (warp == 0 && column < lines) {
        for (int w = 1; w < 8; ++w) {
            largest = max(largest, rows[w][lane]);
        }
        peaks[static_cast<size_t>(blockIdx.y) * lines + column] = largest;
    }
}

// As slice_row, of columns. grid: (lines / 32, k / DEPTH), rounded up   block: 256
template <int SLICES, class Element>
__device__ __forceinline__ void slice_columns(const float* x, int ld, const Word* peaks, int* exponents, Element* slices,
                                              int lines, int k) {
    __shared__ Turned tile;
    __shared__ int chosen[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32, depth = blockIdx.y * DEPTH;
    if (warp == 0 && first + lane < lines) {
        Word largest = 0;
        for (int chunk = 0; chunk * CHUNK < k; ++chunk) {
            largest = max(largest, peaks[static_cast<size_t>(chunk) * lines + first + lane]);
        }
        chosen[lane] = exponent(largest);
        if (blockIdx.y == 0) {
            exponents[first + lane] = chosen[lane];
        }
    }
    turn(tile, x, ld, first, depth, lines, k);
    __syncthreads();
    if (depth + 4 * lane < pitch(k)) {
        for (int c = warp; c < min(32, lines - first); c += 8) {
            const float4 here = *reinterpret_cast<const float4*>(&tile.column[c][4 * lane]);
            const int s = chosen[c];
            const float factor = scale(s);
            float four[4] = {here.x, here.y, here.z, here.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                four[i] = s == SPOILED ? 0.0f : four[i] * factor;
            }
            Element* to = slices + static_cast<size_t>(first + c) * pitch(k) + depth + 4 * lane;
            store_slices<SLICES>(four, to, static_cast<size_t>(lines) * pitch(k));
        }
    }
}
