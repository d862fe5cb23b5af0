// Lines of an fp32 matrix, along which the inner dimension k runs: rows of A, columns of B. Loads, and powers of two.

#pragma once

using Word = unsigned int;  // 32 bits

constexpr int SPOILED = -2147483647 - 1;  // the exponent of a line with an Inf or a NaN: its products are NaN
constexpr int CHUNK = 256;  // elements of a column that a block looks at for what its line needs
constexpr int DEPTH = 128;  // elements of a column that a block transposes

// |x| as an integer of the same order.
__device__ __forceinline__ Word magnitude(float x) {
    return __float_as_uint(x) & 0x7FFFFFFF;
}

// 2^e as a double, |e| < 1023.
__device__ __forceinline__ double power(int e) {
    return __hiloint2double((e + 1023) << 20, 0);
}

// Elements 4 quad to 4 quad + 3 of a line of k numbers, zeros beyond.
__device__ __forceinline__ void load_quad(float (&x)[4], const float* line, int quad, int k) {
    const float* from = line + 4 * quad;
    if (4 * quad + 3 < k && reinterpret_cast<size_t>(from) % 16 == 0) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = 4 * quad + i < k ? from[i] : 0.0f;
        }
    }
}

// 32 columns and DEPTH rows of a matrix [k, lines], transposed. Rows are as far apart as reads of four floats like.
struct Turned {
    alignas(16) float column[32][DEPTH + 4];
};

// A block of 256 fills the tile whose corner is (depth, first); zeros beyond the matrix.
__device__ __forceinline__ void turn(Turned& tile, const float* x, int ld, int first, int depth, int lines, int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < DEPTH / 8; ++i) {
        const int h = warp + 8 * i;
        const bool inside = depth + h < k && first + lane < lines;
        tile.column[lane][h] = inside ? x[static_cast<size_t>(depth + h) * ld + first + lane] : 0.0f;
    }
}

// alpha x 2^-(s + t) + beta c, in double and rounded once; C is not read if beta is 0.
__device__ __forceinline__ float finished(double x, int s, int t, float alpha, float beta, const float* c) {
    const bool spoiled = s == SPOILED || t == SPOILED;
    const double result = alpha * (spoiled ? __longlong_as_double(0x7FF8000000000000) : x * power(-(s + t)));
    return static_cast<float>(beta == 0.0f ? result : result + static_cast<double>(beta) * *c);
}

// Two neighbours of a row of C; `both`: whether C has the second. `aligned`: whether pairs lie at multiples of 8 bytes.
__device__ __forceinline__ void store_pair(float* to, float one, float other, bool both, bool aligned) {
    if (both && aligned) {
        *reinterpret_cast<float2*>(to) = make_float2(one, other);
    } else {
        to[0] = one;
        if (both) {
            to[1] = other;
        }
    }
}
