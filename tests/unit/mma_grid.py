"""Runs the rings of kernels/ada on the CPU under mma_grid.hpp: fp16 operands, fp32 C, sums in fp32 or fp16."""

from __future__ import annotations

from pathlib import Path

import hopper_grid

from gemmrepro.registry import Kernel

DRIVER = r"""
#include "mma_grid.hpp"
SOURCE
// Of magnitude 2 at most: sums of 500 products are exact in fp16, in any order.
static void fill(std::vector<fp16>& matrix, size_t count, unsigned seed) {
    std::mt19937 draw(seed);
    matrix.resize(count);
    for (fp16& element : matrix) {
        element = half_from(float(int(draw() % 5) - 2));
    }
}

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), from = atoi(v[8]), to = atoi(v[9]);
    constexpr size_t GUARD = 4096;
    std::vector<fp16> A, B;
    fill(A, size_t(m) * k, 1), fill(B, size_t(n) * k, 2);
    std::vector<float> C, wanted(size_t(m) * n);
    for (size_t i = 0; i < wanted.size(); ++i) {
        for (int p = 0; p < k; ++p) {
            wanted[i] += widen(A[i / n * k + p]) * widen(B[i % n * k + p]);
        }
    }
    for (int seed = from; seed < to; ++seed) {
        C.assign(wanted.size() + GUARD, NAN);
        const TensorMap map_a{A.data(), m, k, BOX_A}, map_b{B.data(), n, k, BOX_B}, map_c{C.data(), m, n, BOX_C};
        float* const c = C.data();
        (void)map_c, (void)c;
        hopper_grid::launch(atoi(v[4]), atoi(v[5]), atoi(v[6]), atoi(v[7]), [&] { CALL; }, seed);
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
        for (size_t i = 0; i < C.size(); ++i) {
            if (i < wanted.size() ? C[i] != wanted[i] : C[i] == C[i]) {
                printf("C[%zu, %zu] is %g, not %g (seed %d)\n", i / n, i % n, C[i], i < wanted.size() ? wanted[i] : NAN,
                       seed);
                return 1;
            }
        }
    }
}
"""


def compile_model(kernel: Kernel, source: str, program: Path) -> Path:
    """Compile `source`, that of `kernel` or a planted one, to a program that runs it. Raises CalledProcessError."""
    names = {"map:a": "map_a", "map:b": "map_b", "map:c": "map_c"}
    arguments = ", ".join(names.get(str(argument), str(argument)) for argument in kernel.call.arguments)
    code = DRIVER.replace("SOURCE", hopper_grid.as_model(source)).replace("CALL", f"{kernel.code.entry}({arguments})")
    for operand in "abc":
        code = code.replace(f"BOX_{operand.upper()}", hopper_grid.box(kernel.call.tensor_maps.get(operand)))
    return hopper_grid.compile_program(code, program, "mma_grid.hpp")
