// An entry point with a ring on the CPU, under every order of events from one seed to another: C = A B^T, exactly.
//
// usage: M N K GRID_X GRID_Y THREADS BLOCKS_OF_A_CLUSTER FROM TO CLUSTER_X CLUSTER_Y CLUSTER_Z
// OPERAND and RESULT are types; MOST is the largest magnitude of an operand. SCALED: rows and blocks of 128 have scales.
// BETA: C = gelu(alpha A B^T + beta C0 + bias), by two launches if there is APART.
SOURCE
using Operand = OPERAND;
using Result = RESULT;

// Memory of the caller's, of whatever type a kernel takes it for.
struct Any {
    void* data;
    template <class Type>
    operator Type*() const {
        return reinterpret_cast<Type*>(data);
    }
};
// Zero before the first launch, and as the kernel leaves it before the next.
struct Workspace : Any {
    std::vector<float4> memory;
    explicit Workspace(size_t bytes) : memory(bytes / sizeof(float4) + 1, float4{}) { data = memory.data(); }
};

static std::vector<float> drawn(size_t count, unsigned seed, int most) {
    std::mt19937 draw(seed);
    std::vector<float> values(count);
    for (float& value : values) {
        value = int(draw() % (2 * most + 1)) - most;
    }
    return values;
}
template <class Type>
static void code(std::vector<Type>& to, const std::vector<float>& values) {
    std::map<float, Type> codes;
    for (unsigned bits = 0; bits < 1u << 8 * sizeof(Type); ++bits) {
        Type each{};
        memcpy(&each, &bits, sizeof each);
        codes.insert({widen(each), each});
    }
    to.resize(values.size());
    std::transform(values.begin(), values.end(), to.begin(), [&](float value) { return codes.at(value); });
}

static float read_of(float value) { return value; }
template <class Type>
float read_of(Type value) { return widen(value); }
static float rounded(float, double value) { return value; }
static float rounded(fp16, double value) { return widen(to_half(value)); }
static float rounded(bf16, double value) { return widen(narrow(value)); }

int main(int, char** v) {
    WORKSPACE
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), from = atoi(v[8]), to = atoi(v[9]);
    constexpr size_t GUARD = 4096;
    const size_t size = size_t(m) * n;
    std::vector<float> wide_a = drawn(size_t(m) * k, 1, MOST), wide_b = drawn(size_t(n) * k, 2, MOST);
    std::vector<Operand> A, B;
    code(A, wide_a), code(B, wide_b);
    const size_t depth = (k + 127) / 128, pitch = (depth + 3) / 4 * 4;
    auto of_a = drawn(depth * m, 3, SCALED), of_b = drawn((n + 127) / 128 * pitch, 4, SCALED);
    for (auto* scales : {&of_a, &of_b}) {
        std::transform(scales->begin(), scales->end(), scales->begin(), exp2f);
    }
    std::vector<double> sums(size);
    for (size_t at = 0; at < size; ++at) {
        const size_t i = at / n, j = at % n;
        for (size_t step = 0; step < depth; ++step) {
            const size_t end = min<size_t>(k, 128 * step + 128);
            float part = 0;
            for (size_t p = 128 * step; p < end; ++p) {
                part += wide_a[i * k + p] * wide_b[j * k + p];
            }
            sums[at] += double(part) * of_a[step * m + i] * of_b[j / 128 * pitch + step];
        }
    }
    const Any scale_a{of_a.data()}, scale_b{of_b.data()};
    std::vector<Result> C(size + GUARD);
    const Any c{C.data()};
#ifdef BETA
    const float alpha = 0.125f, beta = BETA;
    const auto wide_c0 = drawn(size, 3, 8), wide_bias = drawn(n, 4, 2);
    std::vector<bf16> C0, Bias, Z(size);
    code(C0, wide_c0), code(Bias, wide_bias);
    if (beta == 0) {
        memset(C0.data(), 0xFF, 2 * size);  // must not be read
    }
    const Any bias{Bias.data()}, z{Z.data()};
#endif
    hopper_grid::early_launch = EARLY;
    hopper_grid::lengths = {atoi(v[10]), atoi(v[11]), atoi(v[12])};
    MAPS
    for (int seed = from; seed < to; ++seed) {
        // Another product than the launch before: what that one left behind must not pass for this one's.
        for (float& value : wide_a) {
            value = -value;
        }
        code(A, wide_a);
        memset(C.data(), 0xFF, C.size() * sizeof(Result));
        hopper_grid::launch(atoi(v[4]), atoi(v[5]), atoi(v[6]), atoi(v[7]), [&] { CALL; }, seed);
#ifdef APART
        if (hopper_grid::problem.empty()) {
            hopper_grid::launch_in_turn((m * n / 8 + POINTWISE_THREADS - 1) / POINTWISE_THREADS, 1, POINTWISE_THREADS,
                                        [&] { bias_gelu(z, bias, c, m, n); }, seed);
        }
        memset(Z.data(), 0xFF, 2 * size);
#endif
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
        for (size_t i = 0; i < C.size(); ++i) {
            const float is = read_of(C[i]);
            float wanted = NAN;
            bool right = is != is;
            if (i < size) {
                const double sum = (seed - from) % 2 ? sums[i] : -sums[i];
#ifdef BETA
                const float x = alpha * sum + (beta == 0 ? 0 : beta * wide_c0[i]) + wide_bias[i % n];
                wanted = x * 0.5f * (1 + erff(x * 0.70710678f));
                right = fabsf(is - wanted) <= 0.02f * fabsf(wanted) + SLACK;  // the model cuts what it rounds, z as well
#else
                wanted = rounded(Result{}, sum), right = is == wanted;
#endif
            }
            if (!right) {
                printf("C[%zu, %zu] is %g, not %g (seed %d)\n", i / n, i % n, is, wanted, seed);
                return 1;
            }
        }
    }
}
