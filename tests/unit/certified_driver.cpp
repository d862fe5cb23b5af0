// R10 on the CPU; R11 if EARLY is defined, R14 if SHARED_TILES is, R17 if FIRST_WAVE is, too: launches one after the other, as
// family.py and gemmrepro.dgemm order them.
//
// usage: certified M N K LDA LDB LDC A_TRANSPOSED B_TRANSPOSED LOOSENED EAGER SEED IN OUT; LOOSENED 99: all in double.
// EAGER 2 and 3: 0 and 1 with a B that was prepared, whose inner exponents are those of B beside ones.
// IN: alpha, beta, A, B, C as stored. OUT: C and what the launches left behind (certified_grid.py reads it).
SOURCE;

#ifdef EARLY
#define LAUNCH(name) name##_early
constexpr int DOUBLE_THREADS = THIRD_THREADS;
#else
#define LAUNCH(name) name
constexpr int DOUBLE_THREADS = NATIVE_THREADS;
#endif

static int seed;
static void check(unsigned threads) {
#ifdef EARLY
    if (hopper_grid::problem.empty() && waited != threads) hopper_grid::problem = "a thread did not wait for the launch before";
    waited = 0;
#endif
    if (!hopper_grid::problem.empty()) {
        fprintf(stderr, "%s\n", hopper_grid::problem.c_str());
        exit(1);
    }
}
template <class Call>
static void run(unsigned x, unsigned y, unsigned threads, const Call& call) {
    hopper_grid::launch_in_turn(x, y, threads, call, seed);
    check(x * y * threads);
}
template <class Call>
static void run_at_once(unsigned blocks, unsigned threads, const Call& call) {
    hopper_grid::launch(blocks, 1, threads, 1, call, seed);
    check(blocks * threads);
}
static unsigned ceil_by(int a, int b) { return (a + b - 1) / b; }

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), lda = atoi(v[4]), ldb = atoi(v[5]), ldc = atoi(v[6]);
    const bool ta = atoi(v[7]), tb = atoi(v[8]);
    const int loosened = atoi(v[9]), eager = atoi(v[10]) % 2;
    const bool prepared = atoi(v[10]) > 1;
    seed = atoi(v[11]);
    FILE *in = fopen(v[12], "rb"), *out = fopen(v[13], "wb");
    const auto scalars = read<double>(in, 2);
    const double alpha = scalars[0], beta = scalars[1];
    const auto A = read<double>(in, size_t(ta ? k : m) * lda), B = read<double>(in, size_t(tb ? n : k) * ldb);
    auto C = read<double>(in, size_t(m) * ldc);
    const double *a = A.data(), *b = B.data();
    double* c = C.data();
    const size_t wide = pitch(k), rows = ceil_by(m, BM), cols = ceil_by(n, BN), tiles = rows * cols;
    auto inner = unwritten<int>(wide), plan = unwritten<int>(6), list = unwritten<int>(tiles), natives = list;
#ifdef SHARED_TILES
    auto some = unwritten<int>(2);
#else
    auto& some = plan;
#endif
    auto coarse_a = unwritten<unsigned char>(m * wide), coarse_b = unwritten<unsigned char>(n * wide);
    auto residues_a = unwritten<unsigned char>(COUNT * m * wide), residues_b = unwritten<unsigned char>(COUNT * n * wide);
    auto summaries_a = unwritten<Summary>(m), summaries_b = unwritten<Summary>(n);
    auto gauges_a = unwritten<Gauge>(m), gauges_b = unwritten<Gauge>(n);
    auto partial = unwritten<Measure>(ceil_by(k, CHUNK) * size_t(max(m, n)));
    auto largest = unwritten<int>(max(m, n)), exponents_a = unwritten<int>(m), exponents_b = unwritten<int>(n);
    auto worst = unwritten<float4>(tiles);
    auto kinds = unwritten<unsigned char>(tiles);
    auto residues = unwritten<uint4>(size_t(COUNT) * tiles * BM * BN / 16);

    if (loosened == 99) {
        for (unsigned t = 0; t < tiles; ++t) {
            natives[t] = tile_at(t, rows, cols).row << 16 | tile_at(t, rows, cols).col;
        }
        plan[PLAN_COUNT] = plan[PLAN_TILES] = 0, plan[PLAN_NATIVE] = tiles;
    } else {
        run(ceil_by(k, 32), 1, 256, [&] {
            const double one = 1.0;
            LAUNCH(sample_inner)(prepared ? &one : a, prepared ? 0 : ta ? 1 : lda, prepared ? 0 : ta ? lda : 1, b,
                                 tb ? 1 : ldb, tb ? ldb : 1, inner.data(), prepared ? 1 : m, n, k);
        });
        run(1, 1, 1024, [&] { LAUNCH(settle_inner)(inner.data(), plan.data(), k); });
#ifndef FIRST_WAVE
        run(GROUPS, GROUPS, GLANCERS, [&] {
            LAUNCH(glance)(a, ta ? 1 : lda, ta ? lda : 1, b, tb ? 1 : ldb, tb ? ldb : 1, inner.data(), plan.data(), m, n, k, loosened,
                   eager);
        });
#endif
        const auto measure = [&](const double* x, int ld, bool by_columns, int sign, auto& coarse, auto& summaries,
                                 auto& gauges, int count) {
            if (by_columns) {
                run(ceil_by(count, 32), ceil_by(k, CHUNK), 256, [&] {
                    LAUNCH(measure_columns)(x, ld, inner.data(), sign, plan.data(), coarse.data(), partial.data(), largest.data(),
                                    count, k);
                });
                run(ceil_by(count, 128), 1, 128, [&] {
                    LAUNCH(join_columns)(plan.data(), partial.data(), largest.data(), summaries.data(), gauges.data(), count, k);
                });
            } else {
                run(count, 1, 256, [&] {
                    LAUNCH(measure_rows)(x, ld, inner.data(), sign, plan.data(), coarse.data(), summaries.data(), gauges.data(), k);
                });
            }
        };
        measure(a, lda, ta, 1, coarse_a, summaries_a, gauges_a, m);
        measure(b, ldb, !tb, -1, coarse_b, summaries_b, gauges_b, n);
        const TensorMap map_ca{coarse_a.data(), m, int(wide), BM, 128, 128};
        const TensorMap map_cb{coarse_b.data(), n, int(wide), BN, 128, 128};
        float* each = reinterpret_cast<float*>(worst.data());
#ifdef FIRST_WAVE
        run_at_once(2, THREADS, [&] { bound_first_wave(map_ca, map_cb, gauges_a.data(), gauges_b.data(), each, m, n, k); });
        run_at_once(2, THREADS, [&] {
            bound_others(map_ca, map_cb, plan.data(), gauges_a.data(), gauges_b.data(), each, m, n, k, loosened, eager);
        });
#else
        run_at_once(2, THREADS, [&] {
            LAUNCH(bound_tiles)(map_ca, map_cb, plan.data(), gauges_a.data(), gauges_b.data(), each, m, n, k);
        });
#endif
        run(1, 1, 1024, [&] {
#ifdef SHARED_TILES
            decide(worst.data(), plan.data(), some.data(), list.data(), natives.data(), kinds.data(), m, n, k, loosened, eager);
#else
            LAUNCH(decide)(worst.data(), plan.data(), list.data(), natives.data(), kinds.data(), m, n, k, loosened, eager);
#endif
        });
        const auto turn = [&](const double* x, int ld, bool by_columns, int sign, auto& summaries, auto& exponents,
                              auto& to, int count) {
            if (by_columns) {
                run(ceil_by(count, 32), ceil_by(wide, DEPTH), 256, [&] {
                    LAUNCH(columns_to_residues)(x, ld, inner.data(), sign, plan.data(), summaries.data(), exponents.data(),
                                        to.data(), count, k);
                });
            } else {
                run(count, 1, 256, [&] {
                    LAUNCH(rows_to_residues)(x, ld, inner.data(), sign, plan.data(), summaries.data(), exponents.data(), to.data(),
                                     count, k);
                });
            }
        };
        turn(a, lda, ta, 1, summaries_a, exponents_a, residues_a, m);
        turn(b, ldb, !tb, -1, summaries_b, exponents_b, residues_b, n);
        const TensorMap map_a{residues_a.data(), COUNT * m, int(wide), BM, 128, 128};
        const TensorMap map_b{residues_b.data(), COUNT * n, int(wide), BN, 128, 128};
        run_at_once(2, THREADS, [&] {
            LAUNCH(multiply)(map_a, map_b, some.data(), list.data(), residues.data(), m, n, k);
        });
#ifdef SHARED_TILES
        const TensorMap map_tall{residues_a.data(), COUNT * m, int(wide), TALL, 128, 128};
        const TensorMap map_share{residues_b.data(), COUNT * n, int(wide), SHARE, 128, 128};
        std::vector<unsigned> meeting(2);
        hopper_grid::launch(2 * CLUSTER, 1, THREADS, CLUSTER, [&] {
            multiply_whole(map_tall, map_share, plan.data(), reinterpret_cast<in_step::Meeting*>(meeting.data()),
                           residues.data(), m, n, k);
        }, seed);
        if (hopper_grid::problem.empty() && (meeting[0] || meeting[1])) hopper_grid::problem = "counters are left";
        check(0);
#endif
        run(PARTS * cols * rows, 1, 256, [&] {
            LAUNCH(reconstruct)(plan.data(), kinds.data(), residues.data(), exponents_a.data(), exponents_b.data(), c, ldc, m, n,
                        alpha, beta);
        });
    }
    run(2, 1, DOUBLE_THREADS, [&] {
        const auto native = ta ? (tb ? LAUNCH(native_tt) : LAUNCH(native_tn)) : (tb ? LAUNCH(native_nt) : LAUNCH(native_nn));
        native(a, lda, b, ldb, plan.data(), natives.data(), c, ldc, m, n, k, alpha, beta);
    });
    write(out, C), write(out, plan), write(out, kinds), write(out, inner), write(out, worst);
    write(out, exponents_a), write(out, exponents_b), write(out, coarse_a), write(out, coarse_b);
    fclose(out);
}
