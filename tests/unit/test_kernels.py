"""The ladder's sources, run on the CPU: every element loaded, multiplied and stored as it should be.

This is no measurement and no replacement for the numerical gate on a GPU. It compiles the very .cu files as C++
(tests/unit/cpu_grid.hpp turns CUDA's words into C++) and so proves index arithmetic and barriers where no GPU is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_grid import compile_program

from gemmrepro import registry
from gemmrepro.operations import Shape

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

DRIVER = r"""
#include "cpu_grid.hpp"
SOURCE
static int m, n, k;
static float alpha, beta;
static std::vector<float> A, B, C;
static float *a, *b, *c;
static TensorMap map_b;

// Room for `count` floats from a 16-byte boundary on, as cudaMalloc gives at least.
static float* aligned(std::vector<float>& room, size_t count) {
    room.resize(count + 4);
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(room.data()) + 15) & ~uintptr_t(15));
}

int main(int, char** v) {
    m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]);
    alpha = atof(v[4]), beta = atof(v[5]);
    const size_t of_a = A_COUNT, of_b = size_t(k) * n, of_c = size_t(m) * n;
    a = aligned(A, of_a), b = aligned(B, of_b), c = aligned(C, of_c);
    FILE* in = fopen(v[6], "rb");
    if (fread(a, 4, of_a, in) + fread(b, 4, of_b, in) + fread(c, 4, of_c, in) != of_a + of_b + of_c) return 2;
    fclose(in);
    map_b = {b, k, n, MAP_BOX};
    cpu_grid::launch({(unsigned)atoi(v[8]), (unsigned)atoi(v[9]), 1}, {(unsigned)atoi(v[10]), (unsigned)atoi(v[11]), 1},
                     [] { CALL; }, atoi(v[12]));
    FILE* out = fopen(v[7], "wb");
    fwrite(c, 4, size_t(m) * n, out);
    fclose(out);
}
"""
A_COUNTS = {"gemm": "size_t(m) * k", "vector_add": "n", "gelu": "n"}


def compile_for_cpu(
    kernel: registry.Kernel, folder: Path, precompiled: Path, plant: tuple[str, str, int] | None = None
) -> Path:
    """Compile `kernel`'s source, `plant` = (text, replacement, which occurrence) applied, into a program."""
    source = kernel.source_path.read_text()
    if plant:
        text, replacement, which = plant
        pieces = source.split(text)
        assert len(pieces) > which + 1, f"{text!r} is not in {kernel.source}"
        source = text.join(pieces[: which + 1]) + replacement + text.join(pieces[which + 1 :])
    # The headers' functions stand in cpu_grid.hpp; shared memory whose size is given at launch is ample here.
    source = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE)
    source = re.sub(
        r"extern __shared__ .*\bdynamic_shared\[\];", "alignas(128) static float4 dynamic_shared[1 << 14];", source
    )
    box = kernel.call.tensor_maps["b"].box if kernel.call.tensor_maps else (0, 0)
    arguments = ", ".join(argument.replace("map:b", "map_b") for argument in kernel.call.arguments)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / kernel.id
    code = DRIVER.replace("A_COUNT", A_COUNTS[kernel.compute.op]).replace("SOURCE", source)
    code = code.replace("MAP_BOX", f"{box[0]}, {box[1]}").replace("CALL", f"{kernel.code.entry}({arguments})")
    (folder / f"{kernel.id}.cpp").write_text(code)
    compile_program(folder / f"{kernel.id}.cpp", program, kernel.code.defines, precompiled)
    return program


def run_on_cpu(
    program: Path, kernel: registry.Kernel, shape: Shape, alpha: float, beta: float, operands, reverse: bool = False
) -> np.ndarray:
    a, b, c = operands
    given, result = program.with_suffix(".in"), program.with_suffix(".out")
    given.write_bytes(b"".join(np.ascontiguousarray(x, dtype=np.float32).tobytes() for x in (a, b, c)))
    launch = kernel.launch(shape)
    command = [program, *(shape.m, shape.n, shape.k), alpha, beta, given, result]
    command += [*launch.grid[:2], *launch.block[:2], int(reverse)]
    subprocess.run([str(part) for part in command], check=True, timeout=120)
    return np.frombuffer(result.read_bytes(), np.float32).reshape(shape.m, shape.n)


def operands(shape: Shape, seed: int = 0, beta: float = 0.0):
    """A and B with small integers, so that every sum is exact; C poisoned with NaN where it may not be read."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-9, 10, (shape.m, shape.k)).astype(np.float32)
    b = rng.integers(-9, 10, (shape.k, shape.n)).astype(np.float32)
    c = np.full((shape.m, shape.n), np.nan, np.float32)
    if beta:
        c = rng.integers(-9, 10, (shape.m, shape.n)).astype(np.float32)
    return a, b, c


GEMMS = [kernel for kernel in registry.kernels("ladder") if kernel.compute.op == "gemm"]


CUT = Shape(256, 512, 31 * 16)
"""Level 7.6 cuts each of its four tiles into three pieces or more."""


def shapes(kernel: registry.Kernel) -> list[Shape]:
    """Unequal sizes with more than one block each way; tails where the rung takes them."""
    if not kernel.accepts.multiple_of:
        return [Shape(37, 70, 45), Shape(33, 1, 64), Shape(1, 65, 1)]
    step = kernel.accepts.multiple_of
    cut = [CUT] if kernel.id == "ladder.cut" else []
    return [Shape(2 * step["m"], 3 * step["n"], 3 * step["k"]), Shape(step["m"], step["n"], step["k"]), *cut]


@pytest.fixture(scope="module")
def programs(tmp_path_factory, precompiled):
    folder = tmp_path_factory.mktemp("cpu")
    return {kernel.id: compile_for_cpu(kernel, folder, precompiled) for kernel in registry.kernels("ladder")}


@pytest.mark.parametrize("kernel", GEMMS, ids=lambda kernel: kernel.id)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_gemm_is_exact_on_integers(kernel, programs, reverse):
    for shape in shapes(kernel):
        for alpha, beta in ((1.0, 0.0), (-2.0, 0.5)):
            a, b, c = operands(shape, seed=shape.n, beta=beta)
            got = run_on_cpu(programs[kernel.id], kernel, shape, alpha, beta, (a, b, c), reverse)
            want = alpha * (a.astype(np.float64) @ b.astype(np.float64))
            if beta:
                want = want + beta * c
            np.testing.assert_array_equal(got, want.astype(np.float32), err_msg=f"{shape} alpha={alpha} beta={beta}")


def test_the_shape_meant_to_be_cut_is():
    assert registry.kernel("ladder.cut").launch(CUT).grid[0] >= 3 * 4


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_vector_add_covers_any_length_with_any_grid(programs, blocks):
    kernel = registry.kernel("ladder.vector_add")
    small_grid = replace(kernel, launch=lambda shape: replace(kernel.launch(shape), grid=(blocks, 1, 1)))
    for n in (1, 255, 256, 257, 2000):
        x, y = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
        got = run_on_cpu(programs[kernel.id], small_grid, Shape(1, n, 1), 1, 0, (x, y, np.full(n, np.nan)))
        np.testing.assert_array_equal(got[0], x + y)


PLANTS = [
    # (kernel, what, text, replacement, occurrence)
    ("ladder.smem", "no barrier before the reads", "__syncthreads();", "", 0),
    ("ladder.smem", "no barrier after the reads", "__syncthreads();", "", 1),
    ("ladder.blocktile_1d", "no barrier after the reads", "__syncthreads();", "", 1),
    ("ladder.blocktile_2d", "no barrier before the reads", "__syncthreads();", "", 0),
    ("ladder.vectorized", "no barrier after the reads", "__syncthreads();", "", 1),
    ("ladder.warptile", "no barrier before the reads", "__syncthreads();", "", 0),
    ("ladder.naive", "B read transposed", "B[p * n + col]", "B[col * k + p]", 0),
    ("ladder.warptile", "last sub-tile not written", "j < WNITER * TN; j += 4)", "j < (WNITER - 1) * TN; j += 4)", 1),
    ("ladder.async_copy", "no wait for the copies", "__pipeline_wait_prior(STAGES - 2);", "", 0),
    ("ladder.async_copy", "no barrier before the reads", "__syncthreads();", "", 0),
    ("ladder.async_copy", "slot filled while it is read", "copy_tile(t + STAGES - 1);", "copy_tile(t + STAGES);", 0),
    ("ladder.fragments", "no wait for the next tile", "__pipeline_wait_prior(STAGES - 2);", "", 1),
    ("ladder.fragments", "no barrier between tiles", "__syncthreads();", "", 1),
    ("ladder.spread", "one part too few", "(part + 1) * COPIES / STEPS", "(part + 1) * (COPIES - 1) / STEPS", 0),
    (
        "ladder.spread",
        "waits for one group too few",
        "__pipeline_wait_prior(STAGES - 2);",
        "__pipeline_wait_prior(3);",
        1,
    ),
    ("ladder.tma", "no wait for B", "barrier_wait(&arrived[slot ^ 1], (t + 1) / 2 % 2);", "", 0),
    ("ladder.tma", "B of the wrong columns", "block_col, t * BK", "block_row, t * BK", 0),
    ("ladder.pinned", "A stored where it is read", "store_a(slot ^ 1);", "store_a(slot);", 0),
    ("ladder.pinned", "A never stored again", "store_a(slot ^ 1);", "", 0),
    ("ladder.cut", "a piece ends early", "to = steps - (pieces", "to = steps - 1 - (pieces", 0),
    ("ladder.cut", "a piece forgotten", "other < piece.pieces; ++other", "other < piece.pieces - 1; ++other", 0),
    ("ladder.cut", "A from the tile's first step", " + piece.from * BK", "", 0),
    ("ladder.coalesced", "C read although beta is 0", "beta == 0.0f ? 0.0f : ", "", 0),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_planted_bug_shows(plant, tmp_path, precompiled):
    kernel = registry.kernel(plant[0])
    program = compile_for_cpu(kernel, tmp_path, precompiled, plant[2:])
    step = kernel.accepts.multiple_of or {"m": 32, "n": 32, "k": 32}
    shape = CUT if kernel.id == "ladder.cut" else Shape(2 * step["m"], step["n"] * 2, step["k"] * 6)
    wrong = []
    for reverse in (False, True):
        a, b, c = operands(shape)
        got = run_on_cpu(program, kernel, shape, 1.0, 0.0, (a, b, c), reverse)
        wrong.append(not np.array_equal(got, (a.astype(np.float64) @ b).astype(np.float32)))
    assert any(wrong), plant[1]
