// A kernel of the family sgemm on the CPU: its launches one after the other, as family.py and gemmrepro.sgemm order them.
//
// usage: sgemm M N K LDA LDB LDC A_BY_COLUMNS B_BY_COLUMNS SEED IN OUT
// IN: alpha, beta, A, B, C as stored, all float. OUT: C as stored, exponents of A and of B.
SOURCE;

// Unwritten memory, and 64 elements more than are asked for.
template <class Type>
static std::vector<Type> guarded(size_t count) {
    return unwritten<Type>(count + 64);
}
static int seed;
static void check() {
    if (!hopper_grid::problem.empty()) {
        printf("%s\n", hopper_grid::problem.c_str());
        exit(1);
    }
}
template <class Call>
static void run(unsigned x, unsigned y, const Call& call) {
    hopper_grid::launch_in_turn(x, y, 256, call, seed);
    check();
}
static unsigned ceil_by(int a, int b) { return (a + b - 1) / b; }

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), lda = atoi(v[4]), ldb = atoi(v[5]), ldc = atoi(v[6]);
    const bool a_by_columns = atoi(v[7]), b_by_columns = atoi(v[8]);
    seed = atoi(v[9]);
    FILE *in = fopen(v[10], "rb"), *out = fopen(v[11], "wb");
    const auto scalars = read<float>(in, 2);
    const auto A = read<float>(in, size_t(a_by_columns ? k : m) * lda), B = read<float>(in, size_t(b_by_columns ? n : k) * ldb);
    auto C = read<float>(in, size_t(m) * ldc);
    const size_t wide = pitch(k);
    auto exponents_a = guarded<int>(m), exponents_b = guarded<int>(n);
#ifdef NUMBERS
    using Part = unsigned char;
    constexpr int PARTS_OF = COUNT;
    auto gauges = guarded<double>(ceil_by(k, CHUNK) * size_t(max(m, n)));
#else
    using Part = Element;
    constexpr int PARTS_OF = SLICES;
    auto gauges = guarded<Word>(ceil_by(k, CHUNK) * size_t(max(m, n)));
#endif
    auto parts_a = guarded<Part>(PARTS_OF * m * wide), parts_b = guarded<Part>(PARTS_OF * n * wide);
    // Lines of `x` along k: rows, or columns.
    const auto cut = [&](const std::vector<float>& x, int ld, bool rows, auto& exponents, auto& to, int lines) {
        if (rows) {
#ifdef NUMBERS
            run(lines, 1, [&] {
                row_residues(x.data(), ld, exponents.data(), reinterpret_cast<signed char*>(to.data()), lines, k);
            });
        } else {
            run(ceil_by(lines, 32), ceil_by(k, CHUNK), [&] { column_squares(x.data(), ld, gauges.data(), lines, k); });
            run(ceil_by(lines, 32), ceil_by(wide, DEPTH), [&] {
                column_residues(x.data(), ld, gauges.data(), exponents.data(), reinterpret_cast<signed char*>(to.data()),
                                lines, k);
            });
        }
#else
            run(lines, 1, [&] { row_slices(x.data(), ld, exponents.data(), to.data(), lines, k); });
        } else {
            run(ceil_by(lines, 32), ceil_by(k, CHUNK), [&] { column_peaks(x.data(), ld, gauges.data(), lines, k); });
            run(ceil_by(lines, 32), ceil_by(wide, DEPTH), [&] {
                column_slices(x.data(), ld, gauges.data(), exponents.data(), to.data(), lines, k);
            });
        }
#endif
    };
    cut(A, lda, !a_by_columns, exponents_a, parts_a, m);
    cut(B, ldb, b_by_columns, exponents_b, parts_b, n);
    constexpr int COLUMNS = 128 / sizeof(Part);
    const TensorMap map_a{parts_a.data(), PARTS_OF * m, int(wide), BM, COLUMNS, 128};
    const TensorMap map_b{parts_b.data(), PARTS_OF * n, int(wide), BN, COLUMNS, 128};
#ifdef NUMBERS
    auto residues = guarded<uint4>(size_t(COUNT) * ceil_by(m, BM) * ceil_by(n, BN) * BM * BN / 16);
    hopper_grid::launch(2, 1, THREADS, 1, [&] { multiply(map_a, map_b, residues.data(), m, n, k); }, seed);
    check();
    run(PARTS * ceil_by(n, BN) * ceil_by(m, BM), 1, [&] {
        reconstruct(residues.data(), exponents_a.data(), exponents_b.data(), C.data(), ldc, m, n, scalars[0], scalars[1]);
    });
#else
    hopper_grid::launch(2, 1, THREADS, 1, [&] {
        multiply(map_a, map_b, exponents_a.data(), exponents_b.data(), C.data(), ldc, m, n, k, scalars[0], scalars[1]);
    }, seed);
    check();
#endif
    exponents_a.resize(m), exponents_b.resize(n);
    write(out, C), write(out, exponents_a), write(out, exponents_b);
    fclose(out);
}
