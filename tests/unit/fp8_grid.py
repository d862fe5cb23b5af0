"""Runs the sources of kernels/fp8 on the CPU under hopper_grid.hpp, on e4m3 operands with results in fp16."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import hopper_grid
import numpy as np

from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, TensorMap

KEPT_BITS = 13
"""What the model of a coarse tensor core keeps below the largest term of a sum."""

HEADER = KERNELS_DIR / "common/wgmma_e4m3.cuh"

DRIVER = r"""
#include "hopper_grid.hpp"
SOURCE
template <class Type>
static std::vector<Type> read(const char* folder, const char* name, size_t count) {
    std::vector<Type> values(count);
    FILE* file = fopen((std::string(folder) + "/" + name).c_str(), "rb");
    if (!file || fread(values.data(), sizeof(Type), count, file) != count) {
        printf("%s is not of %zu elements\n", name, count);
        exit(1);
    }
    fclose(file);
    return values;
}

int main(int, char** v) {
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), from = atoi(v[6]), to = atoi(v[7]);
    const size_t depth = (k + 127) / 128;
    constexpr size_t GUARD = 4096;
    auto A = read<e4m3>(v[8], "a", size_t(m) * k), B = read<e4m3>(v[8], "b", size_t(n) * k);
    const auto of_a = read<float>(v[8], "scale_a", depth * m);
    const auto of_b = read<float>(v[8], "scale_b", size_t((n + 127) / 128) * ((depth + 3) / 4 * 4));
    const float *const scale_a = of_a.data(), *const scale_b = of_b.data();
    (void)scale_a, (void)scale_b;
    std::vector<fp16> C;
    hopper_grid::kept_bits = KEPT_BITS;
    for (int seed = from; seed < to; ++seed) {
        C.assign(size_t(m) * n + GUARD, fp16{0x7E01});
        const TensorMap map_a{A.data(), m, k, BOX_A}, map_b{B.data(), n, k, BOX_B}, map_c{C.data(), m, n, BOX_C};
        hopper_grid::launch(atoi(v[4]), 1, atoi(v[5]), 1, [&] { CALL; }, seed);
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
        for (size_t i = size_t(m) * n; i < C.size(); ++i) {
            if (C[i].bits != 0x7E01) {
                printf("C was written beyond its end (seed %d)\n", seed);
                return 1;
            }
        }
        FILE* file = fopen((std::string(v[8]) + "/c" + std::to_string(seed)).c_str(), "wb");
        fwrite(C.data(), sizeof(fp16), size_t(m) * n, file);
        fclose(file);
    }
}
"""


def compile_model(
    kernel: Kernel,
    source: str,
    program: Path,
    entry: str = "",
    maps: dict[str, TensorMap] | None = None,
    kept_bits: int = 0,
    arguments: tuple[str | int, ...] = (),
) -> Path:
    """Compile `source`, that of `kernel` or a planted one, to a program that runs `entry` (default: the kernel's own).

    Args:
        kept_bits: of a wgmma's sum below its largest term; 0: all.
        arguments: of the call, instead of the record's.
    """
    maps = maps or dict(kernel.call.tensor_maps)
    passed = ", ".join(re.sub("^map:", "map_", str(argument)) for argument in arguments or kernel.call.arguments)
    code = DRIVER.replace("SOURCE", hopper_grid.as_model(source))
    code = code.replace("CALL", f"{entry or kernel.code.entry}({passed})")
    for operand in "abc":
        code = code.replace(f"BOX_{operand.upper()}", hopper_grid.box(maps.get(operand)))
    return hopper_grid.compile_program(code, program, defines=[f"-DKEPT_BITS={kept_bits}"])


def scale_shapes(shape: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the scales of A and of B as kernels take them."""
    depth = -(-shape.k // 128)
    return (depth, shape.m), (-(-shape.n // 128), -(-depth // 4) * 4)


def draw(shape: Shape, law: str, seed: int, scaled: bool) -> dict[str, np.ndarray]:
    """A [m, k] and B [n, k] as codes of e4m3, and scales, all ones unless `scaled`.

    `law` is "small" (-1, 0 and 1, whose sums are exact), "uniform" (in [0, 1)) or "normal".
    """
    rng = np.random.default_rng(seed)

    def matrix(rows: int) -> np.ndarray:
        size = (rows, shape.k)
        values = {
            "small": lambda: rng.integers(-1, 2, size),
            "uniform": lambda: rng.random(size),
            "normal": lambda: rng.standard_normal(size),
        }[law]()
        return narrow(values.astype(np.float32), "fp8_e4m3")

    a, b = matrix(shape.m), matrix(shape.n)
    of_a, of_b = (2.0 ** rng.integers(-2, 2, size) for size in scale_shapes(shape))
    if not scaled:
        of_a, of_b = np.ones_like(of_a), np.ones_like(of_b)
    return {"a": a, "b": b, "scale_a": of_a.astype(np.float32), "scale_b": of_b.astype(np.float32)}


def product(shape: Shape, drawn: dict[str, np.ndarray]) -> np.ndarray:
    """C [m, n] in float64: products of each 128 of K times both scales, added."""
    a, b = (widen(drawn[name], "fp8_e4m3") for name in "ab")
    total = np.zeros((shape.m, shape.n))
    for step, start in enumerate(range(0, shape.k, 128)):
        part = a[:, start : start + 128] @ b[:, start : start + 128].T
        of_b = np.repeat(drawn["scale_b"][:, step], 128)[: shape.n]
        total += part * drawn["scale_a"][step][:, None].astype(np.float64) * of_b
    return total


def run_model(
    program: Path, folder: Path, shape: Shape, drawn: dict[str, np.ndarray], blocks: int, seeds: range
) -> tuple[str, list[np.ndarray]]:
    """The first problem under any of `seeds`, "" if no rule was broken, and C [m, n] under each of them."""
    folder.mkdir(exist_ok=True)
    for name, values in drawn.items():
        values.tofile(folder / name)
    numbers = (shape.m, shape.n, shape.k, blocks, 384, seeds.start, seeds.stop)
    done = subprocess.run([program, *map(str, numbers), folder], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return done.stdout.strip() or f"ended by signal {-done.returncode}", []
    return "", [np.fromfile(folder / f"c{seed}", np.float16).reshape(shape.m, shape.n) for seed in seeds]
