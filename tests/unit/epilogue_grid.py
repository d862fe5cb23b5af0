"""Runs kernels/hopper/15_epilogue.cu on the CPU under hopper_grid.hpp: its ring, its pieces of C, its numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hopper_grid

from gemmrepro.operations import Shape

DRIVER = r"""
#include "hopper_grid.hpp"
SOURCE
static void fill(std::vector<bf16>& array, size_t count, unsigned seed, int most) {
    std::mt19937 draw(seed);
    array.resize(count);
    for (bf16& element : array) {
        element = narrow(float(int(draw() % (2 * most + 1)) - most));
    }
}

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), blocks = atoi(v[4]), from = atoi(v[6]), to = atoi(v[7]);
    const float alpha = 0.125f, beta = atof(v[5]);
    constexpr size_t GUARD = 4096;
    std::vector<bf16> A, B, C, Z, D, bias;
    fill(A, size_t(m) * k, 1, 1), fill(B, size_t(n) * k, 2, 1), fill(C, size_t(m) * n, 3, 8), fill(bias, n, 4, 2);
    if (beta == 0) {
        C.assign(C.size(), bf16{0x7FC1});  // must not be read
    }
    std::vector<float> wanted(size_t(m) * n);
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < k; ++p) {
                sum += widen(A[size_t(i) * k + p]) * widen(B[size_t(j) * k + p]);
            }
            const float z = alpha * sum + (beta == 0 ? 0 : beta * widen(C[size_t(i) * n + j])) + widen(bias[j]);
            wanted[size_t(i) * n + j] = z * 0.5f * (1 + erff(z * 0.70710678f));
        }
    }
    for (int seed = from; seed < to; ++seed) {
        Z.assign(size_t(m) * n, bf16{0x7FC1});
        D.assign(size_t(m) * n + GUARD, bf16{0x7FC1});
        const TensorMap map_a{A.data(), m, k, 128, 64, 128}, map_b{B.data(), n, k, 128, 64, 128};
        const TensorMap map_c0{C.data(), m, n, 16, 64, 128}, map_d{D.data(), m, n, 16, 64, 128};
        const TensorMap map_z{Z.data(), m, n, 16, 64, 128};
        const Word* const added = reinterpret_cast<const Word*>(bias.data());
        (void)map_d, (void)map_z;
        hopper_grid::launch(blocks, 1, THREADS, 1, [&] { CALL; }, seed);
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
        THEN
        for (size_t i = 0; i < D.size(); ++i) {
            // The model cuts what it rounds, and in two launches z as well.
            const float value = widen(D[i]), near = i < wanted.size() ? 0.02f * fabsf(wanted[i]) + SLACK : 0;
            const bool right = i < wanted.size() ? fabsf(value - wanted[i]) <= near : D[i].bits == 0x7FC1;
            if (!right) {
                const float not_that = i < wanted.size() ? wanted[i] : NAN;
                printf("D[%zu, %zu] is %g, not %g (seed %d)\n", i / n, i % n, value, not_that, seed);
                return 1;
            }
        }
    }
}
"""
FUSED = {"CALL": "fused(map_a, map_b, map_c0, map_d, added, alpha, beta, m, n, k)", "THEN": "", "SLACK": "1e-6f"}
APART = {
    "CALL": "product(map_a, map_b, map_c0, map_z, alpha, beta, m, n, k)",
    "THEN": r"""
        hopper_grid::launch_in_turn((m * n / 8 + POINTWISE_THREADS - 1) / POINTWISE_THREADS, 1, POINTWISE_THREADS, [&] {
            bias_gelu(reinterpret_cast<const uint4*>(Z.data()), reinterpret_cast<const uint4*>(bias.data()),
                      reinterpret_cast<uint4*>(D.data()), m, n); }, seed);""",
    "SLACK": "0.05f",
}


def compile_model(source: str, program: Path, way: dict[str, str]) -> Path:
    """Compile 15_epilogue.cu's `source`, or a planted one, to a program that computes D in one `way`.

    Raises CalledProcessError.
    """
    code = DRIVER
    for name, text in {**way, "SOURCE": hopper_grid.as_model(source)}.items():
        code = code.replace(name, text)
    return hopper_grid.compile_program(code, program)


def run_model(program: Path, shape: Shape, blocks: int, beta: float, seeds: range) -> str:
    """The first problem under any of `seeds`; "" if D is right under all of them and no rule was broken."""
    numbers = (shape.m, shape.n, shape.k, blocks, beta, seeds.start, seeds.stop)
    done = subprocess.run([program, *map(str, numbers)], capture_output=True, text=True, timeout=300)
    return "" if done.returncode == 0 else (done.stdout.strip() or f"ended by signal {-done.returncode}")
