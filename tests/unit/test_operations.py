"""Operations: each is one record and one gate, and nobody else decides by its name."""

import ast
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import StandIn
from test_gate_faults import added, copied, counted, multiplied, nothing, pointwise_gelu, summed, with_scales

from gemmrepro import registry
from gemmrepro.core.dependencies import closure
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import GATES, JUDGING, Gates, protocol
from gemmrepro.measure.plan import needed_bytes
from gemmrepro.measure.rounds import Workspace
from gemmrepro.operands import Launcher, Operands
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
        other = registry.kernel("ceilings.ffma").with_code(entry="another_loop")
        list(Gates().of("ceiling_flops").cases(SimpleNamespace(), other, lambda operands: None, [1]))


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_gates_protocol_follows_the_code_that_it_reaches_and_no_other(name: str) -> None:
    kernel = next(kernel for kernel in registry.kernels() if kernel.problem.op == name)
    reached = closure(f"{GATES[name].__module__}:{GATES[name].__name__}", within=JUDGING)
    assert protocol(kernel)
    assert {("gemmrepro.gates.gate", "Gate"), ("gemmrepro.gates.gate", "Verdict")} <= reached
    others = {(gate.__module__, gate.__name__) for gate in GATES.values() if not issubclass(GATES[name], gate)}
    assert not reached & others, "an edit of another operation's gate stales nothing"


LAUNCHES: dict[str, Launcher] = {
    "gemm": multiplied,
    "gemm_scaled": with_scales,
    "vector_add": added,
    "gelu": pointwise_gelu,
    "reduce": summed,
    "histogram": counted,
    "ceiling_flops": nothing,  # a loop within its bounds writes nothing
}
"""Honest launches by operation; all others copy."""


def right(operands: Operands) -> None:
    LAUNCHES.get(operands.problem.op, copied)(operands)


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
