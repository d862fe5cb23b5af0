"""The gate of the loops that measure ceilings: it passes them as their sources have them, and no wrong ones."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy

from gemmrepro import registry
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.errors import UserError
from gemmrepro.gates import ceilings
from gemmrepro.gates.gate import Judged
from gemmrepro.gates.operations import Gates
from gemmrepro.operands import Operands

SESSION = SimpleNamespace(sync=lambda: None)
THREADS = 128
BOUND = 1e6
Loop = Callable[[np.ndarray, float, float, int], None]


@pytest.fixture(autouse=True)
def numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())


def failures(name: str, run: Loop) -> list[str]:
    """Messages of the cases that a loop fails; all cases of the gate are run."""
    return [one.verdict.message for one in judged(name, run) if not one.verdict.passed]


def errors(name: str, run: Loop) -> list[float | None]:
    return [one.verdict.err_scaled_max for one in judged(name, run)]


def judged(name: str, run: Loop) -> list[Judged]:
    kernel = registry.kernel(f"ceilings.{name}")

    def launch(operands: Operands) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            run(operands.output, operands.alpha, operands.beta, operands.iterations)

    found = list(Gates().of(kernel.compute.op).cases(SESSION, kernel, launch, [1]))
    assert len(found) >= 4
    return found


def fma(p, q, r) -> np.ndarray:
    return (np.float64(np.float32(p)) * np.asarray(q, np.float64) + np.asarray(r, np.float64)).astype(np.float32)


def begin(count: int, first: float, step: float, along: float) -> np.ndarray:
    """What the loops begin with: [threads, count] float32."""
    thread = np.arange(THREADS, dtype=np.float64)[:, None]
    return (first + step * thread + along * np.arange(count)).astype(np.float32)


def write(out: np.ndarray, sums: np.ndarray) -> None:
    """Threads write their sums in any order where these are not small."""
    for one in sums:
        if not abs(one) < BOUND:
            out[0] = one


def shears(turns: int = 32, keep: int = 8) -> Loop:
    """ffma.cu thread by thread."""

    def run(out, a, b, iterations) -> None:
        x, y = begin(8, 1.0, 0.03, 0.11), begin(8, 0.5, -0.02, 0.07)
        for _ in range(turns * iterations):
            x = fma(a, y, x)
            y = fma(b, x, y)
        write(out, (x + y)[:, :keep].sum(axis=1))

    return run


def outer(steps: int = 8, rows: int = 8, columns: int = 16, lost: bool = False) -> Loop:
    """ffma_rrr.cu thread by thread; `lost` skips the subtracting steps."""

    def run(out, a, b, iterations) -> None:
        x = fma(a, begin(rows, 1.0, 0.03, 0.11), 0.0)
        y = fma(b, begin(columns, 0.5, -0.02, 0.07), 0.0)
        sums = (x[:, :, None] - y[:, None, :]).astype(np.float32)
        for step in range(steps * iterations):
            sign = 1.0 if step % 2 == 0 else -1.0
            if sign > 0 or not lost:
                sums = (sign * x.astype(np.float64)[:, :, None] * y.astype(np.float64)[:, None, :] + sums).astype(
                    np.float32
                )
        write(out, sums.sum(axis=(1, 2)))

    return run


def writes(value: float) -> Loop:
    def run(out, a, b, iterations) -> None:
        out[0] = value

    return run


def beyond(loop: Loop) -> Loop:
    """The same loop, and a write behind the output."""

    def run(out, a, b, iterations) -> None:
        loop(out, a, b, iterations)
        np.lib.stride_tricks.as_strided(out, (2,), (4,))[1] = 0.0

    return run


def nothing(out, a, b, iterations) -> None:
    pass


def test_the_shears_of_the_source_pass():
    assert failures("ffma", shears()) == []
    growing = [error for error in errors("ffma", shears()) if error is not None]
    assert len(growing) == 2, "of the rotations there is nothing to compare"
    assert 0.001 < max(growing) < 4 * 32 * 2, "in units of fp32's roundoff"


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        (shears(turns=31), "is no thread's sum"),
        (shears(turns=33), "is no thread's sum"),
        (shears(keep=7), "is no thread's sum"),
        (nothing, "is no thread's sum"),
        (writes(1e20), "a rotation left its bounds: 1.00000002e+20"),
        (beyond(shears()), "memory outside the output was overwritten"),
    ],
)
def test_other_shears_fail(loop, says):
    assert any(says in message for message in failures("ffma", loop))


def test_a_rotation_may_write_nothing():
    """Both rotations are judged: of the four cases, two grow."""
    assert len(failures("ffma", writes(1e20))) == 4


@pytest.mark.parametrize(("name", "loop"), [("ffma", shears()), ("ffma_rrr", nothing)])
def test_the_cases_are_those_of_the_recorded_verdicts(name, loop):
    recorded = json.loads((RECORDINGS / "h200/ceilings/gates.json").read_text())[f"ceilings.{name}"]["toolkits"]
    cases = [one.case for one in judged(name, loop)]
    tried = [(case.alpha, case.beta, case.inputs, case.seed) for case in cases]
    for toolkit in recorded.values():
        assert tried == [(case["alpha"], case["beta"], case["inputs"], case["seed"]) for case in toolkit["cases"]]


def test_the_outer_products_of_the_source_pass():
    assert failures("ffma_rrr", outer()) == []


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        (outer(lost=True), "is no thread's sum"),
        (outer(columns=15), "is no thread's sum"),
        (outer(steps=0), "products beyond all bounds left no trace"),
        (nothing, "products beyond all bounds left no trace"),
        (nothing, "the nearest is off by inf"),
        (writes(float("inf")), "the sums left their bounds"),
        (beyond(outer()), "memory outside the output was overwritten"),
    ],
)
def test_other_outer_products_fail(loop, says):
    assert any(says in message for message in failures("ffma_rrr", loop))


def test_a_loop_without_an_emulation_is_refused():
    kernel = registry.kernel("ceilings.dram_copy")
    with pytest.raises(UserError, match="no loop 'dram_copy' is emulated"):
        list(ceilings.ArithmeticCeiling().cases(SESSION, kernel, lambda operands: None, [1]))


def test_what_the_sweep_judges_is_untouched_or_small():
    kernel = registry.kernel("ceilings.ffma")

    def small(values: np.ndarray) -> bool:
        operands = Operands(kernel.problem, ceilings._SHAPE, (), values)
        return Gates().of(kernel.compute.op).judge(operands, None).passed

    poison = np.array([0x7FC0DEAD], np.uint32).view(np.float32)
    assert small(poison) and small(np.array([-9e5], np.float32))
    for bad in (1e6, -2e6, float("nan")):
        assert not small(np.array([bad], np.float32))


# Tensor cores: elements are a hash of where they stand.


def hashed(number: int) -> int:
    """`hash` of mma_f16.cu and wgmma.cu."""
    h = number * 0x9E3779B1 & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def element(place: int) -> float:
    """`scatter` of the sources."""
    parts = [part for number in (2 * place, 2 * place + 1) for part in (hashed(number) & 0xFFFF, hashed(number) >> 16)]
    return (sum(parts) - 2 * 0xFFFF) / 32768.0


def test_elements_are_the_hash_of_their_places():
    assert ceilings.scatter(1000, 40).tolist() == [element(place) for place in range(1000, 1040)]
    assert ceilings.scatter(0, 1).dtype == np.float32


def half(value: float) -> float:
    return struct.unpack("<e", struct.pack("<e", value))[0]


def fragments(iterations: int, a: float, b: float) -> float:
    """What thread 0 of mma_f16.cu adds up: rows 0 and 8 of every 16 and columns 0 and 1 of every 8 of 64 x 64."""
    total = 0.0
    for iteration in range(iterations):
        amplitude = b if iteration % 2 else a
        for row in range(0, 64, 8):
            left = [half(amplitude * element(16 * row + k)) for k in range(16)]
            for column in range(64):
                if column % 8 < 2:
                    right = [half(element(1024 + 16 * column + k)) for k in range(16)]
                    total += sum(x * y for x, y in zip(left, right, strict=True))
    return total


def test_the_sum_of_fragments_is_that_of_the_source():
    for iterations, a, b in ((1, 1.0, 0.5), (2, 1.0, 0.5), (3, -1.0, 0.25)):
        assert ceilings.mma_sum(iterations, a, b) == pytest.approx(fragments(iterations, a, b), abs=1e-9)


@pytest.mark.parametrize("name", ["mma_f16", "wgmma"])
def test_sums_of_tensor_cores_may_be_off_by_rounding_alone(name):
    of = {"mma_f16": ceilings.mma_sum, "wgmma": ceilings.wgmma_sum}[name]

    def off_by(error: float, beyond_: int = 0) -> list[str]:
        def run(out, a, b, iterations) -> None:
            out[0] = of(iterations + beyond_, a, b) + error

        return failures(name, run)

    assert off_by(0.0) == off_by(0.008) == off_by(-0.008) == []
    assert len(off_by(0.02)) >= 4 and len(off_by(-0.02)) >= 4
    assert all("expected" in message for message in off_by(0.0, 1)) and len(off_by(0.0, 1)) >= 4
