// A ring of kernels/crt on the CPU, under every order of events from one seed to another: sums of products of residues.
//
// usage: M N K GRID_X GRID_Y THREADS BLOCKS_OF_A_CLUSTER FROM TO; prints how often its threads slept.
SOURCE
#ifdef TWO_WIDTHS
constexpr int BN = 208;
static std::pair<int, int> within(int column, int n) { return in_two_widths(column, n); }
#else
// The column of tiles that a column of C lies in, and where in it.
static std::pair<int, int> within(int column, int) { return {column / BN, column % BN}; }
#endif
static const int PRODUCTS_OF = PRODUCTS_A_MODULUS;

static int dot(const Element* a, const Element* b, int columns) {
    int sum = 0;
    for (int p = 0; p < columns; ++p) {
        sum += short(a[p]) * short(b[p]);
    }
    return sum;
}

// Random operands of `products` products, the matrices of each below those of the one before; `columns` is their pitch.
struct Problem {
    int m, n, k, columns, products;
    std::vector<Element> A, B;
    std::vector<int> sums;  // [products, m, n], modulo 2^32

    Problem(int m, int n, int k, int products, unsigned most)
        : m(m), n(n), k(k), columns((k + 127) / 128 * 128), products(products) {
        std::mt19937 draw(1);
        const auto fill = [&](std::vector<Element>& matrix, int rows) {
            matrix.assign(size_t(products) * rows * columns, 0);
            for (size_t i = 0; i < matrix.size(); ++i) {
                matrix[i] = int(i % columns) < k ? draw() % most : 0;
            }
        };
        fill(A, m), fill(B, n);
        for (size_t i = 0; i < size_t(products) * m; ++i) {
            for (int j = 0; j < n; ++j) {
                sums.push_back(dot(&A[i * columns], &B[(i / m * n + j) * columns], columns));
            }
        }
    }
};

// What the product of modulus `i` leaves of a sum, and where: the order that the sources document.
using Result = std::conditional_t<PARTS == BN / 8, int, unsigned char>;
static Result left_of(int sum, int i) {
    if (sizeof(Result) == sizeof(int)) {
        return sum;
    }
    const int p = MODULI[i];
    const long long whole = UNSIGNED ? (long long)(unsigned(sum)) : sum;
    return (whole % p + p) % p;
}
static size_t place(int product, int row, int column, int problem_columns, int tile_rows, int tile_cols) {
    constexpr int WIDTH = BN / PARTS;
    const auto [tile_col, c] = within(column, problem_columns);
    const int r = row % BM, lane = r % 8 * 4 + c % 8 / 2;
    const size_t tile = (size_t(product) * tile_rows + row / BM) * tile_cols + tile_col;
    const size_t part = ((tile * (BM / 16) + r / 16) * PARTS + c / WIDTH) * 32 + lane;
    return part * (WIDTH / 2) + c % WIDTH / 8 * 4 + r % 16 / 8 * 2 + c % 2;
}

template <class Number>
static bool differs(const char* what, size_t i, Number is, Number wanted, int seed) {
    if (is != wanted) {
        printf("%s[%zu] is %d, not %d (seed %d)\n", what, i, int(is), int(wanted), seed);
    }
    return is != wanted;
}

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), from = atoi(v[8]), to = atoi(v[9]);
    constexpr size_t GUARD = 4096;
    const Problem problem PROBLEM;
    const int cluster = atoi(v[7]), tile_cols = (problem.n + BN - 1) / BN;
    const int padded = PADDED ? cluster : 1, tile_rows = (problem.m + padded * BM - 1) / (padded * BM) * padded;
    const size_t size = size_t(problem.products) * tile_rows * BM * tile_cols * BN;
    auto* const a = const_cast<Element*>(problem.A.data());
    auto* const b = const_cast<Element*>(problem.B.data());
    const TensorMap map_a{a, problem.products * problem.m, problem.columns, BOX_A};
    const TensorMap map_b{b, problem.products * problem.n, problem.columns, BOX_B};
    std::vector<unsigned> counters(2);  // zero before a launch, and after it
    for (int seed = from; seed < to; ++seed) {
        std::vector<float4> memory((size + GUARD) * sizeof(Result) / sizeof(float4));
        memset(memory.data(), 0xA5, memory.size() * sizeof(float4));
        const auto* const results = reinterpret_cast<Result*>(memory.data());
        std::vector<int> peaks_a(problem.m), peaks_b(problem.n);
        const auto call = [&] { CALL; };
        if (ALONE) {
            hopper_grid::launch_in_turn(atoi(v[4]), atoi(v[5]), atoi(v[6]), call, seed);
        } else {
            hopper_grid::launch(atoi(v[4]), atoi(v[5]), atoi(v[6]), cluster, call, seed);
        }
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
#ifdef PEAKS
        std::vector<int> of_rows(problem.m), of_columns(problem.n);
        for (size_t i = 0; i < problem.sums.size(); ++i) {
            int &of_row = of_rows[i / problem.n], &of_column = of_columns[i % problem.n];
            of_row = max(of_row, problem.sums[i]), of_column = max(of_column, problem.sums[i]);
        }
        for (int i = 0; i < problem.m; ++i) {
            if (differs("peaks of rows", i, peaks_a[i], of_rows[i], seed)) {
                return 1;
            }
        }
        for (int i = 0; i < problem.n; ++i) {
            if (differs("peaks of columns", i, peaks_b[i], of_columns[i], seed)) {
                return 1;
            }
        }
#else
        for (size_t i = 0; i < problem.sums.size(); ++i) {
            const int product = i / (size_t(problem.m) * problem.n), row = i / problem.n % problem.m;
            const size_t at = place(product, row, i % problem.n, problem.n, tile_rows, tile_cols);
            if (differs("C", i, results[at], left_of(problem.sums[i], product / PRODUCTS_OF), seed)) {
                return 1;
            }
        }
        Result untouched;
        memset(&untouched, 0xA5, sizeof untouched);
        for (size_t i = size; i < size + GUARD; ++i) {
            if (differs("beyond C", i, results[i], untouched, seed)) {
                return 1;
            }
        }
#endif
        for (unsigned count : counters) {
            if (count != 0) {
                printf("a counter of the workspace is left at %u (seed %d)\n", count, seed);
                return 1;
            }
        }
    }
    printf("%u", hopper_grid::sleeps);
}
