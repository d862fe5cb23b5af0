"""The numerical gate on a GPU: it passes the kernels as they are and fails every bug planted in their own sources."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_tools import ROOT, compiles, load, runs
from plants import PLANTS
from sanitizers import shapes_of

from gemmrepro import registry
from gemmrepro.core import journal
from gemmrepro.gates import gemm, gemm_cases, numeric
from gemmrepro.gates.operations import Gates
from gemmrepro.gpu import baselines, cublas
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands, random
from gemmrepro.operations import K_MAJOR_B, LAYOUTS, ROW_MAJOR, Problem, Shape

pytestmark = pytest.mark.gpu


def runnable(session, kernel_id: str) -> registry.Kernel:
    kernel = registry.kernel(kernel_id)
    if not runs(kernel, session):
        pytest.skip(f"{kernel_id} does not run on this GPU")
    return kernel


@pytest.mark.parametrize("kernel_id", [kernel.id for kernel in registry.kernels()])
def test_the_kernels_pass(session, built, toolkit, kernel_id):
    kernel = runnable(session, kernel_id)
    verdict = numeric.judge(session, load(kernel, session, built, toolkit), journal.fresh_seeds(1))
    assert verdict["status"] == "passed", verdict["reason"]
    assert len(verdict["cases"]) >= 3
    if kernel.compute.op == "gemm" and kernel.compute.dtype_in != "int8":  # whose every result is exact
        errors = [case["err_scaled_max"] for case in verdict["cases"] if case["err_scaled_max"] is not None]
        assert max(errors) > 0, "an error of exactly zero everywhere means that nothing was compared"


UNCHANGED = (
    "crt.fused",
    "crt.accurate",
    "ladder.naive",
    "hopper.sketch",
    "hopper.specialized",
    "memory.histogram_lanes",
    "memory.histogram_ranges",
    "memory.reduce_wide",
    "pytorch.gelu_two",
)


@pytest.fixture(scope="module")
def planted(session, compiled):
    """Every plant that runs here, and the unchanged source of a kernel a family, compiled: paths by name."""
    sources = {name: (*plant.apply(), plant.header) for name, plant in PLANTS.items()}
    for kernel_id in UNCHANGED:
        kernel = registry.kernel(kernel_id)
        sources[kernel_id] = kernel, kernel.source_path.read_text(), ""
    # Bugs in cuTile's sources are planted without a GPU (tests/unit/test_plants_caught.py).
    here = {
        name: given
        for name, given in sources.items()
        if given[0].code.compiler == "nvcc" and runs(given[0], session) and compiles(given[0])
    }
    return compiled(here)


def failures(session, kernel, path) -> Iterator[tuple[Shape, str]]:
    """The gate's cases that a binary fails: shape and message."""
    loaded = Loaded.from_file(session, kernel, path)
    for judged in Gates().of(kernel.compute.op).cases(session, kernel, lambda operands: loaded.bind(operands)(), [1]):
        if not judged.verdict.passed:
            yield judged.case.shape, judged.verdict.message


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_fails(session, planted, name):
    if name not in planted:
        pytest.skip(f"{PLANTS[name].kernel} does not run on this GPU, or nvcc does not compile it")
    kernel, _ = PLANTS[name].apply()
    found = failures(session, kernel, planted[name])
    first = next(found, None)
    assert first is not None, f"{name} went unnoticed"
    assert first[1]
    alone = PLANTS[name].shapes()
    if alone is not None:
        assert {shape for shape, _ in (first, *found)} == alone


@pytest.mark.parametrize("kernel_id", UNCHANGED)
def test_the_unchanged_source_passes_on_the_same_path(session, planted, kernel_id):
    """So that the failures above are the bugs' doing and not the way they were compiled."""
    if kernel_id not in planted:
        pytest.skip(f"{kernel_id} does not run on this GPU")
    assert not list(failures(session, registry.kernel(kernel_id), planted[kernel_id]))


TF32_SHAPES = [Shape.cube(256), Shape(512, 256, 1024), Shape.cube(1024)]


@pytest.mark.parametrize("shape", TF32_SHAPES, ids=str)
@pytest.mark.parametrize("inputs", ["normal", "uniform"])
def test_tf32_is_rejected_and_the_fp32_baseline_is_not(session, shape, inputs):
    outcomes = {}
    for math in ("default", "tf32"):
        library = cublas.opened(session, math)
        case = gemm_cases.Case(shape, 1.0, 0.0, inputs, 7)
        judged = gemm.run_case(session, lambda operands, library=library: library.sgemm(operands)(), case)
        outcomes[math] = judged.verdict
    assert outcomes["default"].passed, outcomes["default"].message
    assert not outcomes["tf32"].passed
    assert outcomes["tf32"].err_scaled_max > 20 * outcomes["default"].err_scaled_max


def test_the_baseline_keeps_blas_semantics(session):
    """alpha, beta, row-major order and the C that must not be read: the baseline passes the gate's own cases."""
    library = cublas.opened(session)
    naive = registry.kernel("ladder.naive")
    for case in gemm_cases.gemm_cases(naive, [3]):
        if "subnormal" in case.inputs or case.inputs in ("Inf and NaN", "overflow"):
            continue  # what a library does at the ends of the range is its own business
        verdict = gemm.run_case(session, lambda operands: library.sgemm(operands)(), case).verdict
        assert verdict.passed, f"{case}: {verdict.message}"


HALVES = ("bf16", "fp16")
TYPES = [
    Problem("gemm", dtype_in, dtype_out, layout)
    for dtype_in, dtype_out in (("tf32", "fp32"), ("fp64", "fp64"), ("int8", "int32"), ("fp8_e4m3", "fp16"))
    for layout in (ROW_MAJOR, K_MAJOR_B)
    if dtype_in != "fp8_e4m3" or layout == K_MAJOR_B
]
TYPES += [Problem("gemm", dtype, out, layout) for dtype in HALVES for out in (dtype, "fp32") for layout in LAYOUTS]


@pytest.mark.parametrize("problem", TYPES, ids=lambda each: f"{each.dtype_in} {each.dtype_out} {each.layout}")
def test_the_baseline_of_every_type_is_right(session, problem):
    """It passes the gate of its type, exact inputs exactly; of 16 bits every way that cublasLt offers does."""
    if problem.dtype_in.startswith("fp8") and session.gpu.compute_capability < (8, 9):
        pytest.skip("cuBLAS multiplies 8-bit floats from compute capability 8.9 on")
    shape, ways = Shape(528, 272, 144), [lambda given: baselines.baseline("cublas.gemm").bind(session, given)]
    if problem.dtype_in in HALVES:
        inputs, output = random(problem, shape, 1)
        offered = len(cublas.opened_lt(session).candidates(Operands(problem, shape, tuple(inputs), output), 8))
        ways += [cublas.opened(session).gemm_ex]
        ways += [lambda given, i=i: cublas.opened_lt(session).candidates(given, 8)[i] for i in range(offered)]
        assert offered > 1, "cublasLt offered next to nothing"
    for way in ways:
        for inputs in ("normal", gemm_cases.EXACT_INPUTS[problem.dtype_in]):
            case = gemm_cases.Case(shape, 1.0, 0.0, inputs, 7)
            verdict = gemm.run_case(session, lambda given, way=way: way(given)(), case, problem).verdict
            assert verdict.passed, f"{inputs}: {verdict.message}"


@pytest.mark.parametrize("inputs", ["normal", gemm_cases.UNITS])
def test_the_baseline_with_sums_in_fp16_is_as_right_as_a_kernel_with_such(session, inputs):
    sketch = registry.kernel("hopper.sketch")
    case = gemm_cases.Case(Shape(520, 264, 136), 1.0, 0.0, inputs, 7)
    errors = []
    for name in (sketch.timing.baseline, "cublas.gemm"):
        verdict = gemm.run_case(
            session,
            lambda operands, name=name: baselines.baseline(name).bind(session, operands)(),
            case,
            sketch.problem,
            kernel=sketch,
        ).verdict
        assert verdict.passed, verdict.message
        errors.append(verdict.err_fro)
    assert inputs != "normal" or errors[0] > 1.5 * errors[1], "its sums are not kept in fp16"


def sanitizer(tool: str, folder: Path, toolkit: str, kernels: list[str]) -> subprocess.CompletedProcess[str]:
    """compute-sanitizer over one launch of each kernel, at a size of several tiles."""
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("compute-sanitizer is not on PATH")

    words = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "99", sys.executable]
    words += [str(ROOT / "tests/sanitizers.py"), "launch", "--build", str(folder)]
    words += [f"{name}:{toolkit}:{shapes_of(registry.kernel(name))[:2][-1]}" for name in kernels]
    return subprocess.run(words, capture_output=True, text=True)


def test_the_sanitizer_would_find_a_missing_barrier(built, planted, toolkit, tmp_path):
    name = "first barrier missing"
    kernel, _ = PLANTS[name].apply()
    folder = tmp_path / "build" / toolkit
    folder.mkdir(parents=True)
    shutil.copy(built / toolkit / f"{kernel.id}.json", folder)
    shutil.copy(planted[name], folder / f"{kernel.id}.fatbin")
    answer = sanitizer("racecheck", tmp_path / "build", toolkit, [kernel.id])
    if "not supported" in answer.stdout:
        pytest.skip("compute-sanitizer does not support this GPU or this virtual machine")
    assert answer.returncode != 0, answer.stdout[-2000:]
