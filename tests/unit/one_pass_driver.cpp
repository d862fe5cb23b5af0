// R15 or R16 on the CPU: its passes over A and B, products of residues as its ring leaves them, and its reconstruction.
//
// usage: one_pass M N K SEED IN OUT. IN: A [m, k], B [k, n]. OUT: exponents of A and B, residues [COUNT, m, pitch] and
// [COUNT, n, pitch], C [m, n].
SOURCE;

#ifdef TWO_WIDTHS  // R16
constexpr int BN = WIDE, BLOCKS_PER_TILE = UNITS / TOGETHER;
using Words = uint2;
static std::pair<int, int> within(int column, int n) { return in_two_widths(column, n); }
#else
constexpr int BLOCKS_PER_TILE = UNITS / 2;
using Words = uint4;
static std::pair<int, int> within(int column, int) { return {column / BN, column % BN}; }
#endif

static void check() {
    if (!hopper_grid::problem.empty()) {
        fprintf(stderr, "%s\n", hopper_grid::problem.c_str());
        exit(1);
    }
}

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), seed = atoi(v[4]);
    FILE *in = fopen(v[5], "rb"), *out = fopen(v[6], "wb");
    const auto a = read<double>(in, size_t(m) * k), b = read<double>(in, size_t(k) * n);
    const size_t wide = pitch(k), rows = (m + BM - 1) / BM, cols = (n + BN - 1) / BN, tile = BM * BN;
    auto exponents_a = unwritten<int>(m), exponents_b = unwritten<int>(n);
    auto residues_a = unwritten<signed char>(COUNT * m * wide), residues_b = unwritten<signed char>(COUNT * n * wide);
    auto residues = unwritten<Words>(COUNT * rows * cols * tile / sizeof(Words));
    auto c = unwritten<double>(size_t(m) * n);

    hopper_grid::dynamic_bytes = k <= ROW ? 8 * wide : 0;
    hopper_grid::launch_in_turn(m, 1, 64, [&] { row_pass(a.data(), exponents_a.data(), residues_a.data(), m, k); }, seed);
    check();
    hopper_grid::dynamic_bytes = COLUMNS * LINE * 8;
    hopper_grid::launch_in_turn(PEERS * ((n + COLUMNS - 1) / COLUMNS), 1, COLUMN_THREADS, [&] {
        column_pass(b.data(), exponents_b.data(), residues_b.data(), n, k);
    }, seed, PEERS);
    check();
    hopper_grid::dynamic_bytes = 0;
    auto* const bytes = reinterpret_cast<unsigned char*>(residues.data());
    for (int i = 0; i < COUNT; ++i) {
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                unsigned sum = 0;
                for (size_t h = 0; h < wide; ++h) {
                    sum += (unsigned char)(residues_a[(size_t(i) * m + row) * wide + h]) *
                           (unsigned char)(residues_b[(size_t(i) * n + column) * wide + h]);
                }
                // The order that in_turn.cuh and two_widths.cuh document.
                const auto [tile_col, s] = within(column, n);
                const int r = row % BM, lane = r % 8 * 4 + s % 8 / 2, width = BN / PARTS;
                const size_t at = (size_t(i) * rows + row / BM) * cols + tile_col;
                const size_t part = ((at * WARPS + r / 16) * PARTS + s / width) * 32 + lane;
                bytes[part * sizeof(Words) + s % width / 8 * 4 + r % 16 / 8 * 2 + s % 2] = sum % MODULI[i];
            }
        }
    }
    hopper_grid::launch_in_turn(BLOCKS_PER_TILE * cols * rows, 1, 128, [&] {
#ifdef TWO_WIDTHS
        threadIdx = {threadIdx.x % 32, threadIdx.x / 32, 0};
#endif
        reconstruct_residues(residues.data(), exponents_a.data(), exponents_b.data(), c.data(), m, n);
    }, seed);
    check();
    write(out, exponents_a), write(out, exponents_b), write(out, residues_a), write(out, residues_b), write(out, c);
    fclose(out);
}
