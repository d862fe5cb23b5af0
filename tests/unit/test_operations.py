"""Operations: each is one record and one gate, and nobody else decides by its name."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy, StandIn

from gemmrepro import registry
from gemmrepro.core.dependencies import closure
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gates import ceilings
from gemmrepro.gates.operations import GATES, JUDGING, Gates, protocol
from gemmrepro.gates.scaled import scaled_operands
from gemmrepro.measure.plan import needed_bytes
from gemmrepro.measure.workspace import Workspace
from gemmrepro.operands import Operands
from gemmrepro.operations import OPERATIONS, Problem, Shape, counts, operation, shape_of

NAMES = sorted(OPERATIONS)
PROBLEMS = {kernel.problem.op: kernel.problem for kernel in registry.kernels()}


def test_every_operation_has_a_gate_and_every_gate_an_operation() -> None:
    assert set(GATES) == set(OPERATIONS) >= set(PROBLEMS)


def test_an_operation_that_cannot_be_judged_or_timed_is_an_error() -> None:
    problem = Problem("transpose")
    for use in (
        lambda: operation("transpose"),
        lambda: shape_of("transpose", 8),
        lambda: counts(problem, Shape(1, 8, 1)),
        lambda: needed_bytes(problem, Shape(1, 8, 1), 1 << 20),
        lambda: Gates().of("transpose"),
    ):
        with pytest.raises(UserError, match="there is no operation 'transpose'; known operations: gemm, "):
            use()
    with pytest.raises(UserError, match=r"'gemm' has no numerical gate; add one to gemmrepro\.gates\.operations"):
        Gates({}).of("gemm")
    with pytest.raises(UserError, match="a sweep cannot time the operation vector_add_in_place"):
        replace(registry.kernel("ladder.vector_add"), timing=registry.Timing(baseline=None))
    with pytest.raises(UserError, match=r"ceilings\.ffma: no loop 'another_loop' is emulated"):
        other = CEILINGS[0].with_code(entry="another_loop")
        list(Gates().of("ceiling_flops").cases(SimpleNamespace(), other, lambda operands: None, [1]))


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_gates_protocol_follows_the_code_that_it_reaches_and_no_other(name: str) -> None:
    kernel = next(kernel for kernel in registry.kernels() if kernel.problem.op == name)
    reached = closure(f"{GATES[name].__module__}:{GATES[name].__name__}", within=JUDGING)
    assert protocol(kernel)
    assert {("gemmrepro.gates.gate", "Gate"), ("gemmrepro.gates.gate", "Verdict")} <= reached
    others = {(gate.__module__, gate.__name__) for op, gate in GATES.items() if op != name}
    assert not reached & others, "an edit of another operation's gate stales nothing"


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_axes_are_those_of_the_arrays(name: str) -> None:
    problem, record = PROBLEMS[name], operation(name)
    shape = record.tails
    arrays = record.arrays(problem, shape)
    stored = {**dict(zip("ab", arrays.inputs, strict=False)), "c": arrays.output}
    for array, axes in record.axes(problem).items():
        assert tuple(getattr(shape, axis) for axis in axes) == stored[array]


def right(operands: Operands) -> None:
    """What every operation must compute, by NumPy."""
    op, inputs, out = operands.problem.op, [np.asarray(array) for array in operands.inputs], operands.output
    if op == "gemm":
        a, b = (array.reshape(operands.lengths(name)) for name, array in zip("ab", inputs, strict=True))
        out[...] = (a.astype(np.float64) @ b).astype(np.float32).ravel()
    elif op == "gemm_scaled":
        a, b = scaled_operands(inputs, operands.shape, operands.problem.dtype_in)
        out[...] = (a @ b).astype(np.float16).ravel()
    elif op == "vector_add":
        out[...] = inputs[0] + inputs[1]
    elif op == "gelu":
        from scipy.special import erf

        out[...] = inputs[0] * 0.5 * (1.0 + erf(inputs[0].astype(np.float64) / np.float64(np.float32(1.41421))))
    elif op == "reduce":
        out[0] = inputs[0].sum()
    elif op == "histogram":
        out[...] = np.append(np.bincount(inputs[0], minlength=operands.shape.k), 0)
    elif op == "ceiling_flops":
        pass  # a loop within its bounds writes nothing
    else:
        out[...] = inputs[0]


def wrong(operands: Operands) -> None:
    """A result with one element off, far beyond any bound if it is a float."""
    right(operands)
    out = operands.output
    out[0] = min(7e6, float(np.finfo(out.dtype).max)) if out.dtype.kind == "f" else out[0] + 1


SHAPES = {
    "gemm": Shape(5, 9, 7),
    "gemm_scaled": Shape(5, 130, 140),
    "copy": Shape(6, 8, 1),
    "histogram": Shape(1, 1000, 256),
    "ceiling_flops": Shape(1, 1, 1),
}
TYPES = {
    "gemm_scaled": ("fp8_e4m3", "fp16"),
    "histogram": ("int32", "int32"),
    "copy": ("bf16", "bf16"),
    "vector_copy": ("fp16", "fp16"),
}


@pytest.fixture
def workspace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setitem(sys.modules, "cupy", StandIn())
    name = request.param
    problem = Problem(name, *TYPES.get(name, ("fp32", "fp32")))
    return Workspace(SimpleNamespace(), problem, SHAPES.get(name, Shape(1, 1000, 1)), 3)


TIMER = SimpleNamespace(once=lambda call: call() or 5.0, estimate=lambda call, first: 3.0)


@pytest.mark.parametrize("workspace", [name for name in NAMES if OPERATIONS[name].swept], indirect=True)
def test_a_sweeps_check_passes_what_is_right_and_times_nothing_that_is_wrong(workspace: Workspace) -> None:
    operands = workspace.operands(None)
    good = workspace.check(lambda: right(operands), TIMER)
    assert (good.passed, good.message, good.estimate_us) == (True, "", 3.0)
    bad = workspace.check(lambda: wrong(operands), TIMER)
    assert not bad.passed and bad.message and bad.estimate_us == 5.0
    assert workspace.operands(None).inputs == operands.inputs


def test_nobody_but_the_two_tables_decides_by_an_operations_name() -> None:
    """A comparison with a name in the source is a decision that a new operation would not take part in."""
    found = []
    for path in sorted((ROOT / "workflow/gemmrepro").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                literals = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found += [f"{path.name}:{node.lineno}" for value in literals if value in OPERATIONS]
    assert found == []


def probed(operands: Operands, off: int) -> None:
    """What a probe of the memory hierarchy must leave, by the operation's definition; `off` steps too many."""
    shape, out = operands.shape, operands.output
    match operands.problem.op:
        case "recurrence":
            x = shape.n
            for _ in range(shape.k + off):
                x = (1664525 * x + 1013904223) % 2**32
            out[:] = np.array([x, 7, 9], np.uint32).view(np.int32)
        case "walk":
            links = np.asarray(operands.inputs[0])
            start = place = links.ctypes.data
            for _ in range(shape.k + 1 + off):  # one before the clock starts
                place = int(links[(place - start) // 4 :][:2].view(np.int64)[0])
            out[:] = [(place - start) // 4, 7, 9]
        case "stream":
            chunks = np.asarray(operands.inputs[0]).view(np.uint32).reshape(-1, 8192)
            out.view(np.uint32)[: len(chunks)] = (shape.k + off) * chunks.sum(axis=1, dtype=np.uint64)
        case "vector_add_in_place":
            operands.output[...] += operands.inputs[0] * (1 + off)


PROBES = [
    kernel
    for kernel in registry.kernels()
    if not kernel.problem.operation.swept and kernel.problem.op != "gemm_epilogue"  # in test_epilogue
]


@pytest.mark.parametrize("kernel", PROBES, ids=lambda kernel: kernel.id)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy adds the gate's infinities, too
def test_a_probe_that_does_a_step_too_many_is_found(kernel: registry.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    session = SimpleNamespace(sync=lambda: None)

    def verdicts(off: int) -> list[bool]:
        gate = Gates().of(kernel.problem.op)
        return [one.verdict.passed for one in gate.cases(session, kernel, lambda given: probed(given, off), [1])]

    assert len(verdicts(0)) >= 3 and all(verdicts(0))
    assert not all(verdicts(1))


CEILINGS = [kernel for kernel in registry.kernels("ceilings") if kernel.problem.op == "ceiling_flops"]


def trace(kernel: registry.Kernel, a: float, b: float, iterations: int) -> float | None:
    """What the kernel's loop writes, by the same recipe; None where it writes nothing."""
    if kernel.code.entry == "wgmma_loop":
        return ceilings.wgmma_sum(iterations, a, b)
    if kernel.code.entry == "mma_loop":
        return ceilings.mma_sum(iterations, a, b)
    if a * b < 0 and abs(a) < 2:
        return None
    if kernel.code.entry == "ffma_loop":
        return float(ceilings.shears(a, b, 32 * iterations, 8, 128)[5])
    return float("inf") if abs(a * b) > 1e38 else float(ceilings.outer_sums(a, b, 8, 16, 128)[5])


@pytest.mark.parametrize("kernel", CEILINGS, ids=lambda kernel: kernel.id)
def test_a_ceilings_loop_is_judged_by_its_own_recipe(kernel: registry.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())

    def failures(factor: float, more: int = 0) -> list[str]:
        def launch(operands: Operands) -> None:
            value = trace(kernel, operands.alpha, operands.beta, operands.iterations + more)
            if value is not None:
                operands.output[0] = factor * value

        session = SimpleNamespace(sync=lambda: None)
        judged = list(Gates().of("ceiling_flops").cases(session, kernel, launch, [1]))
        assert len(judged) >= 4
        return [one.verdict.message for one in judged if not one.verdict.passed]

    assert failures(1.0) == []
    assert failures(1.01)
    if kernel.code.entry in ("ffma_loop", "wgmma_loop", "mma_loop"):
        assert failures(1.0, more=1), "an iteration too many"


def test_memory_for_a_check_is_counted() -> None:
    shape, problem = Shape(2048, 512, 256), Problem()
    reference = 2 * 8 * shape.m * shape.n
    assert operation("gemm").check_bytes(problem, shape) > reference
    assert operation("ceiling_flops").check_bytes(Problem("ceiling_flops"), Shape(1, 1, 1)) == 0
    assert operation("reduce").check_bytes(Problem("reduce"), Shape(1, 1000, 1)) == DTYPES["fp32"] * 1001
