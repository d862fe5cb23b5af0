"""The numerical gate on a GPU: it passes the kernels as they are and fails every bug planted in their own sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_tools import ROOT

from gemmrepro import baselines, gpu, numeric, registry
from gemmrepro.errors import UserError
from gemmrepro.operands import Operands, random, widen
from gemmrepro.registry import LAYOUTS, Problem, Shape

pytestmark = pytest.mark.gpu

GEMM_KERNELS = [kernel.id for kernel in registry.kernels() if kernel.op == "gemm"]


@pytest.mark.parametrize("kernel_id", [kernel.id for kernel in registry.kernels()])
def test_the_kernels_pass(session, built, toolkit, kernel_id):
    kernel = registry.kernel(kernel_id)
    verdict = numeric.judge(session, gpu.Loaded(session, kernel, built, toolkit), numeric.fresh_seeds(1))
    assert verdict["status"] == "passed", verdict["reason"]
    assert len(verdict["cases"]) >= 4
    if kernel.op == "gemm":
        errors = [case["err_scaled_max"] for case in verdict["cases"] if case["err_scaled_max"] is not None]
        assert max(errors) > 0, "an error of exactly zero everywhere means that nothing was compared"


BARRIERS = r"__syncthreads\(\);"
STORE = r"C\[row \* n \+ col\] = "
PLANTED = {
    "first barrier missing": ("ladder.smem", BARRIERS, "", 1),
    "every barrier missing": ("ladder.smem", BARRIERS, "", 0),
    "C stored transposed": ("ladder.coalesced", STORE, "C[col * m + row] = ", 1),
    "B indexed transposed": ("ladder.naive", r"B\[p \* n \+ col\]", "B[col * k + p]", 1),
    "a tile never written": (
        "ladder.blocktile_2d",
        r"(float\* C\) \{)",
        r"\1 if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1) return;",
        1,
    ),
    "one NaN": (
        "ladder.coalesced",
        r"alpha \* sum \+ old",
        "(row == m - 1 && col == n - 1 ? __int_as_float(0x7fffffff) : alpha * sum + old)",
        1,
    ),
    "C read although beta is 0": ("ladder.naive", r"beta == 0\.0f \? 0\.0f : ", "", 1),
    "one row too many written": ("ladder.smem", r"if \(row < m && col < n\)", "if (row <= m && col < n)", 1),
    "the last of K left out": ("ladder.naive", r"p < k;", "p < k - 1;", 1),
}


def plant(name: str) -> tuple[registry.Kernel, str]:
    """The kernel and its source with the bug in it."""
    kernel_id, pattern, replacement, count = PLANTED[name]
    kernel = registry.kernel(kernel_id)
    original = kernel.source_path.read_text()
    changed, times = re.subn(pattern, replacement, original, count=count)
    assert times >= 1 and changed != original, f"the source of {kernel_id} no longer has what '{name}' changes"
    return kernel, changed


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_fails(session, compiled, name):
    kernel, text = plant(name)
    verdict = numeric.judge(session, gpu.Loaded.from_file(session, kernel, compiled(kernel, text)), [1])
    assert verdict["status"] == "failed", f"{name} went unnoticed"
    assert verdict["reason"]


def test_the_unchanged_source_passes_on_the_same_path(session, compiled):
    """So that the failures above are the bugs' doing and not the way they were compiled."""
    for kernel_id in sorted({kernel_id for kernel_id, *_ in PLANTED.values()}):
        kernel = registry.kernel(kernel_id)
        path = compiled(kernel, kernel.source_path.read_text())
        assert numeric.judge(session, gpu.Loaded.from_file(session, kernel, path), [1])["status"] == "passed"


TF32_SHAPES = [Shape.cube(256), Shape(512, 256, 1024), Shape.cube(1024)]


@pytest.mark.parametrize("shape", TF32_SHAPES, ids=str)
@pytest.mark.parametrize("inputs", ["normal", "uniform"])
def test_tf32_is_rejected_and_the_fp32_baseline_is_not(session, shape, inputs):
    outcomes = {}
    for math in ("default", "tf32"):
        library = baselines.cublas(session, math)
        case = numeric.Case(shape, 1.0, 0.0, inputs, 7)
        outcomes[math], _ = numeric.run_case(session, lambda operands, library=library: library.sgemm(operands)(), case)
    assert outcomes["default"].passed, outcomes["default"].message
    assert not outcomes["tf32"].passed
    assert outcomes["tf32"].err_scaled_max > 20 * outcomes["default"].err_scaled_max


def test_the_baseline_keeps_blas_semantics(session):
    """alpha, beta, row-major order and the C that must not be read: the baseline passes the gate's own cases."""
    library = baselines.cublas(session)
    naive = registry.kernel("ladder.naive")
    for case in numeric.gemm_cases(naive, [3]):
        if "subnormal" in case.inputs or case.inputs in ("Inf and NaN", "overflow"):
            continue  # what a library does at the ends of the range is its own business
        verdict, _ = numeric.run_case(session, lambda operands: library.sgemm(operands)(), case)
        assert verdict.passed, f"{case}: {verdict.message}"


HALVES = [Problem("gemm", dtype, dtype, layout) for dtype in ("bf16", "fp16") for layout in LAYOUTS]


@pytest.mark.parametrize("problem", HALVES, ids=lambda problem: f"{problem.dtype_in} {problem.layout}")
def test_every_way_of_the_16_bit_baseline_is_right(session, problem):
    """cublasGemmEx and all that cublasLt offers, in both layouts, exact on small integers."""
    shape = Shape(520, 264, 136)
    inputs, output = random(problem, shape, 1)
    ways = 1 + len(baselines.cublas_lt(session).candidates(Operands(problem, shape, tuple(inputs), output), 8))
    assert ways > 2, "cublasLt offered next to nothing"

    def way(index: int):
        def launch(operands: Operands) -> None:
            library = baselines.cublas(session)
            [library.gemm_ex(operands), *baselines.cublas_lt(session).candidates(operands, 8)][index]()

        return launch

    for index in range(ways):
        for inputs in ("normal", numeric.EXACT):
            verdict, _ = numeric.run_case(session, way(index), numeric.Case(shape, 1.0, 0.0, inputs, 7), problem)
            assert verdict.passed, f"way {index}, {inputs}: {verdict.message}"


def test_the_16_bit_baseline_takes_the_fastest_way(session):
    problem, shape = HALVES[1], Shape.cube(4096)
    assert problem.layout == "row,col,row"
    inputs, output = random(problem, shape, 1)
    operands = Operands(problem, shape, tuple(inputs), output)
    call = baselines.baseline("cublas.gemm").bind(session, operands)
    again = baselines.baseline("cublas.gemm").bind(session, operands)
    for one in (call, again):
        output.fill(0)
        one()
        session.sync()
        assert bool(output.any())
    assert (problem, shape, session.gpu.pci_bus) in baselines._fastest


def test_operands_are_standard_normal_and_differ_by_seed(session):
    problem = HALVES[0]
    first, _ = random(problem, Shape.cube(512), 1)
    second, _ = random(problem, Shape.cube(512), 2)
    values = widen(first[0], "bf16")
    assert abs(float(values.mean())) < 0.01 and abs(float(values.std()) - 1) < 0.01
    assert bool((first[0] != second[0]).any()) and bool((first[0] != first[1]).any())


def test_the_copy_baseline_copies(session):
    import cupy

    source = cupy.asarray(np.random.default_rng(1).standard_normal(4 * 1000, dtype="float32"))
    target = cupy.full(4 * 1000 + 1, 7.0, dtype=cupy.float32)
    operands = Operands(Problem("ceiling_bytes"), Shape(1, 1000, 1), (source,), target)
    baselines.baseline("cuda.memcpy").bind(session, operands)()
    session.sync()
    assert bool((target[:-1] == source).all()) and float(target[-1]) == 7.0


def test_a_size_that_a_rung_cannot_take_is_refused_by_name(session, built, toolkit):
    import cupy

    shape = Shape(128, 100, 128)
    buffer = cupy.zeros(128 * 128, dtype=cupy.float32)
    for kernel_id in GEMM_KERNELS:
        kernel = registry.kernel(kernel_id)
        loaded = gpu.Loaded(session, kernel, built, toolkit)
        operands = Operands(kernel.problem, shape, (buffer, buffer), buffer)
        if kernel.multiple_of:
            with pytest.raises(UserError, match=rf"{re.escape(kernel_id)} cannot run 128x100x128.*N = 100"):
                loaded.bind(operands)
        else:
            loaded.bind(operands)


def sanitizer(tool: str, folder: Path, toolkit: str, kernels: list[str]) -> subprocess.CompletedProcess[str]:
    """compute-sanitizer over one launch of each kernel, at a size of several tiles."""
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("compute-sanitizer is not on PATH")

    def shape(kernel: registry.Kernel) -> str:
        if kernel.op == "vector_add":
            return "1x5001x1"
        return "256x256x64" if kernel.multiple_of else "70x100x65"

    shapes = {kernel: shape(registry.kernel(kernel)) for kernel in kernels}
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        "--report-api-errors",
        "no",
        "--error-exitcode",
        "99",
        sys.executable,
    ]
    command += ["-m", "gemmrepro.counters", "--build", str(folder), "--launch"]
    return subprocess.run(
        [*command, *(f"{kernel}:{toolkit}:{shape}" for kernel, shape in shapes.items())],
        cwd=ROOT / "workflow",
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_nothing(built, toolkit, tool):
    answer = sanitizer(tool, built, toolkit, ["ladder.vector_add", *GEMM_KERNELS])
    if "not supported" in answer.stdout:
        pytest.skip("compute-sanitizer does not support this GPU or this virtual machine")
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-1000:]
    assert re.search(r"(ERROR|RACECHECK) SUMMARY: 0 ", answer.stdout), answer.stdout[-1000:]


def test_the_sanitizer_would_find_a_missing_barrier(built, compiled, toolkit, tmp_path):
    kernel, text = plant("first barrier missing")
    shutil.copytree(built, tmp_path / "build")
    shutil.copy(compiled(kernel, text), tmp_path / "build" / toolkit / f"{kernel.id}.fatbin")
    answer = sanitizer("racecheck", tmp_path / "build", toolkit, [kernel.id])
    if "not supported" in answer.stdout:
        pytest.skip("compute-sanitizer does not support this GPU or this virtual machine")
    assert answer.returncode != 0, answer.stdout[-2000:]
