// Winograd's form of Strassen's step, modulo P: C of 2 x 2 blocks from 7 products of sums of blocks instead of 8.
//
// A's blocks are joined by 4 sums, B's by 4, the products by 7. In floating point such sums cost accuracy; residues stay
// residues. A word holds two of them, in its halves: a sum less P is below P or wraps round, so the smaller of both is
// right, which is one instruction of Hopper's (VIADDMNMX). Modulo 256 sums are cut off instead.

#pragma once

#include "crt/reconstruction.cuh"
#include "crt/residues.cuh"

constexpr int PRODUCTS = 7;
constexpr Word HALVES_OF_ONE = 0x00010001, LOW_BYTES = 0x00FF00FF;

// The lowest bytes of two words in the halves of one.
__device__ __forceinline__ Word side_by_side(Word left, Word right) {
    return __byte_perm(left & 0xFF, right, 0x1410);
}

// x + y modulo P, each half 0 to P - 1.
template <int P>
__device__ __forceinline__ Word plus(Word x, Word y) {
    if constexpr (P == 256) {
        return (x + y) & LOW_BYTES;
    } else {
        constexpr Word LESS_P = (65536 - P) * HALVES_OF_ONE;
        return __viaddmin_u16x2(x + y, LESS_P, x + y);
    }
}

// x - y modulo P.
template <int P>
__device__ __forceinline__ Word minus(Word x, Word y) {
    return plus<P>(x, P * HALVES_OF_ONE - y);
}

// What is multiplied, in the order of the products: first factors of a block matrix A = [x11 x12; x21 x22].
template <int P>
__device__ __forceinline__ void first_factors(Word (&factor)[PRODUCTS], Word x11, Word x12, Word x21, Word x22) {
    const Word s1 = plus<P>(x21, x22), s2 = minus<P>(s1, x11);
    factor[0] = x11, factor[1] = x12, factor[2] = minus<P>(x12, s2), factor[3] = x22;
    factor[4] = s1, factor[5] = s2, factor[6] = minus<P>(x11, x21);
}

// Second factors, of B = [y11 y12; y21 y22].
template <int P>
__device__ __forceinline__ void second_factors(Word (&factor)[PRODUCTS], Word y11, Word y12, Word y21, Word y22) {
    const Word t1 = minus<P>(y12, y11), t2 = minus<P>(y22, t1);
    factor[0] = y11, factor[1] = y21, factor[2] = y22, factor[3] = minus<P>(t2, y21);
    factor[4] = t1, factor[5] = t2, factor[6] = minus<P>(y22, y12);
}

// C's blocks, 11, 12, 21, 22, from the products.
template <int P>
__device__ __forceinline__ void join(Word (&c)[4], const Word (&product)[PRODUCTS]) {
    const Word u2 = plus<P>(product[0], product[5]), u3 = plus<P>(u2, product[6]);
    c[0] = plus<P>(product[0], product[1]);
    c[1] = plus<P>(plus<P>(u2, product[4]), product[2]);
    c[2] = minus<P>(u3, product[3]);
    c[3] = plus<P>(u3, product[4]);
}

// Four neighbours in each of four blocks, to the seven factors of every modulus: a word goes to to[(7 i + q) stride].
// FIRST: factors of A, else of B.
template <bool FIRST, int I = 0>
__device__ __forceinline__ void store_factors(const Integer (&x)[4][4], Word* to, size_t stride) {
    if constexpr (I < COUNT) {
        constexpr int P = MODULI[I];
        Word of[2][PRODUCTS];  // of the first two neighbours, and of the others
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            Word block[4];
#pragma unroll
            for (int b = 0; b < 4; ++b) {
                block[b] = side_by_side(residue<P>(x[b][2 * pair]), residue<P>(x[b][2 * pair + 1]));
            }
            if constexpr (FIRST) {
                first_factors<P>(of[pair], block[0], block[1], block[2], block[3]);
            } else {
                second_factors<P>(of[pair], block[0], block[1], block[2], block[3]);
            }
        }
#pragma unroll
        for (int q = 0; q < PRODUCTS; ++q) {
            to[(PRODUCTS * I + q) * stride] = __byte_perm(of[0][q], of[1][q], 0x6420);
        }
        store_factors<FIRST, I + 1>(x, to, stride);
    }
}

// Weighs the residues of four neighbours in each of C's four blocks: bytes of a word a product and modulus, which
// `word(i)` gives for the i-th of all products.
template <int I = 0, class Read>
__device__ __forceinline__ void weigh_blocks(const Read& word, double (&high)[4][4], double (&low)[4][4]) {
    if constexpr (I < COUNT) {
        constexpr int P = MODULI[I];
        Word even[PRODUCTS], odd[PRODUCTS];
#pragma unroll
        for (int q = 0; q < PRODUCTS; ++q) {
            const Word bytes = word(PRODUCTS * I + q);
            even[q] = bytes & LOW_BYTES, odd[q] = __byte_perm(bytes, 0, 0x4341);
        }
        Word c[2][4];
        join<P>(c[0], even), join<P>(c[1], odd);
        const double weight = WEIGHTS.high[I], rest = WEIGHTS.low[I];
#pragma unroll
        for (int block = 0; block < 4; ++block) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const double r = number(c[e % 2][block], e / 2 * 2);
                high[block][e] = fma(weight, r, high[block][e]);
                low[block][e] = fma(rest, r, low[block][e]);
            }
        }
        weigh_blocks<I + 1>(word, high, low);
    }
}
