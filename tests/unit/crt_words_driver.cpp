// The device functions of kernels/crt as C++: what test_crt.py asks of them.
#include "cuda_words.hpp"
#if NUMBERS <= 15
#include "crt/coarse.inc"
#else
#include "crt/columns.inc"
#endif
#include "crt/reconstruction.inc"
#include "crt/winograd.inc"

template <int I = 0>
static void reduce_sum(int sum, unsigned char* to) {
    if constexpr (I < COUNT) {
        const unsigned char byte = residue<MODULI[I]>(sum);
        if (byte != static_cast<unsigned char>(residue(sum, modulus(I)))) exit(3);
        to[I] = byte;
        reduce_sum<I + 1>(sum, to);
    }
}

template <class T>
static std::vector<T> read(FILE* in, size_t count) {
    std::vector<T> values(count);
    if (fread(values.data(), sizeof(T), count, in) != count) exit(2);
    return values;
}
template <class T>
static void write(FILE* out, const std::vector<T>& values) {
    fwrite(values.data(), sizeof(T), values.size(), out);
}

// exponents k: rows of k doubles -> an exponent each, and all residues [COUNT, rows, k], k a multiple of 4
// factors first: four neighbours in each of four blocks, an exponent a block -> a word for each factor of A, or of B
// joined: a word for each product -> four neighbours in each of four blocks of C, given an s and a t of each
// sums: int32 -> residues [COUNT] each     back: residues [COUNT] and two exponents each -> doubles
int main(int, char** v) {
    FILE *in = fopen(v[3], "rb"), *out = fopen(v[4], "wb");
    const size_t rows = atoll(v[2]);
    if (!strcmp(v[1], "constants")) {
        std::vector<double> all{RADIUS, M_HIGH, M_LOW, PER_M};
        for (int i = 0; i < COUNT; ++i) all.push_back(WEIGHTS.high[i]), all.push_back(WEIGHTS.low[i]);
        write(out, all);
    } else if (!strcmp(v[1], "rows") || !strcmp(v[1], "given")) {
        const int k = atoi(v[5]);
        const auto x = read<double>(in, rows * k);
        const bool given = !strcmp(v[1], "given");
        std::vector<int> exponents = given ? read<int>(in, rows) : std::vector<int>(rows);
        std::vector<Word> words(COUNT * rows * k / 4);
        for (size_t i = 0; i < rows; ++i) {
            Norm one{}, other{};
            for (int h = 0; h < k; ++h) include(h % 3 ? one : other, x[i * k + h]);
            if (!given) exponents[i] = exponent(join(one, other), k);
            for (int quad = 0; quad < k / 4; ++quad) {
                double four[4];
                load_quad(four, &x[i * k], quad, k);
                const Scale s = scale(exponents[i]);
                const Integer whole[4] = {integer(four[0], s), integer(four[1], s), integer(four[2], s),
                                          integer(four[3], s)};
                store_residues(whole, &words[i * k / 4 + quad], rows * k / 4);
            }
        }
        write(out, exponents), write(out, words);
#if NUMBERS <= 15
    } else if (!strcmp(v[1], "coarse")) {
        const int k = atoi(v[5]);
        const auto x = read<double>(in, rows * k);
        const auto peaks = read<int>(in, rows);
        std::vector<int> found;
        std::vector<unsigned char> steps;
        for (size_t i = 0; i < rows; ++i) {
            int biased = 0;
            for (int h = 0; h < k; ++h) biased = std::max(biased, biased_exponent(x[i * k + h]));
            const int e = coarse_exponent(biased);
            found.push_back(e), found.push_back(exponent_below(peaks[i], e));
            for (int h = 0; h < k; ++h) steps.push_back(e == SPOILED ? 0 : coarse(x[i * k + h], coarse_scale(e)));
        }
        write(out, found), write(out, steps);
#endif
    } else if (!strcmp(v[1], "factors")) {
        const bool first = atoi(v[5]);
        const auto x = read<double>(in, rows * 16);
        const auto exponents = read<int>(in, rows * 4);
        std::vector<Word> words(rows * PRODUCTS * COUNT);
        for (size_t i = 0; i < rows; ++i) {
            Integer whole[4][4];
            for (int e = 0; e < 16; ++e) whole[e / 4][e % 4] = integer(x[16 * i + e], scale(exponents[4 * i + e / 4]));
            if (first) store_factors<true>(whole, &words[i], rows);
            else store_factors<false>(whole, &words[i], rows);
        }
        write(out, words);
    } else if (!strcmp(v[1], "joined")) {
        const auto words = read<Word>(in, rows * PRODUCTS * COUNT);
        const auto exponents = read<int>(in, rows * 32);
        std::vector<double> c(rows * 16);
        for (size_t i = 0; i < rows; ++i) {
            double high[4][4] = {}, low[4][4] = {};
            weigh_blocks([&](int product) { return words[product * rows + i]; }, high, low);
            for (int e = 0; e < 16; ++e) {
                c[16 * i + e] = scaled_back(settle(high[e / 4][e % 4], low[e / 4][e % 4]), exponents[32 * i + e],
                                            exponents[32 * i + 16 + e]);
            }
        }
        write(out, c);
    } else if (!strcmp(v[1], "sums")) {
        const auto sums = read<int>(in, rows);
        std::vector<unsigned char> bytes(rows * COUNT);
        for (size_t i = 0; i < rows; ++i) reduce_sum(sums[i], &bytes[i * COUNT]);
        write(out, bytes);
    } else {
        const auto bytes = read<unsigned char>(in, rows * COUNT);
        const auto exponents = read<int>(in, rows * 2);
        std::vector<double> c(rows);
        for (size_t i = 0; i < rows; ++i) {
            const auto at = [&](auto j) { return number(bytes[i * COUNT + j.value], 0); };
            c[i] = scaled_back(reconstruct(at), exponents[2 * i], exponents[2 * i + 1]);
            uint4 all[COUNT];
            for (int j = 0; j < COUNT; ++j) {
                const unsigned word = bytes[i * COUNT + j] * 0x01010101u;
                all[j] = {word, word, word, word};
            }
            for (int half = 0; half < 2; ++half) {
                double high[8] = {}, low[8] = {};
                weigh_eight(all, half, high, low);
                for (int e = 0; e < 8; ++e) {
                    if (scaled_back(settle(high[e], low[e]), exponents[2 * i], exponents[2 * i + 1]) != c[i] &&
                        c[i] == c[i]) exit(4);
                }
            }
        }
        write(out, c);
    }
    fclose(out);
}
