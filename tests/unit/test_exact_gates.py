"""The gates of copies, additions, GELU and probes, with NumPy in the GPU's place: right ones pass, wrong ones fail."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy

from gemmrepro import registry
from gemmrepro.gates import copies, pointwise
from gemmrepro.gates.copies import advance
from gemmrepro.gates.operations import Gates
from gemmrepro.operands import Operands
from gemmrepro.operations import STREAM_CHUNK

SESSION = SimpleNamespace(sync=lambda: None)


@pytest.fixture(autouse=True)
def numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    monkeypatch.setattr(copies, "LENGTHS", (1, 31, 1023))
    monkeypatch.setattr(copies, "MATRICES", ((1, 1), (3, 17)))
    monkeypatch.setattr(pointwise, "LENGTHS", (1, 5, 4099))


def judged(kernel_id: str, run, seeds=(1, 2)) -> list:
    kernel = registry.kernel(kernel_id)

    def launch(operands: Operands) -> None:
        with np.errstate(all="ignore"):
            run(operands)

    return list(Gates().of(kernel.compute.op).cases(SESSION, kernel, launch, seeds))


def messages(kernel_id: str, run) -> list[str]:
    found = judged(kernel_id, run)
    assert all(bool(one.verdict.message) != one.verdict.passed for one in found)
    return [one.verdict.message for one in found]


def behind(array: np.ndarray) -> np.ndarray:
    """The element after an array, which belongs to its guard band."""
    return np.lib.stride_tricks.as_strided(array.reshape(-1), (array.size + 1,), (array.itemsize,))[-1:]


def copied(given: Operands) -> None:
    given.output[...] = given.inputs[0].reshape(given.output.shape)


def added(given: Operands) -> None:
    given.output[...] = given.inputs[0] + given.inputs[1]


def added_in_place(given: Operands) -> None:
    given.output[...] = given.inputs[0] + given.output


RIGHT = {"cute.copy": copied, "ladder.vector_add": added_in_place, "ceilings.dram_copy": copied}


def too_far(run):
    def launch(given: Operands) -> None:
        run(given)
        behind(given.output)[...] = 0

    return launch


def source_spoiled(run):
    def launch(given: Operands) -> None:
        run(given)
        behind(given.inputs[0])[...] = 0

    return launch


def one_wrong(run):
    def launch(given: Operands) -> None:
        run(given)
        flat = given.output.reshape(-1).view(np.uint8)
        flat[-1] ^= 1

    return launch


@pytest.mark.parametrize("kernel_id", RIGHT)
def test_a_copy_or_addition_is_judged_bit_for_bit(kernel_id):
    right = RIGHT[kernel_id]
    assert set(messages(kernel_id, right)) == {""}
    assert all("elements outside the arrays were overwritten" in one for one in messages(kernel_id, too_far(right)))
    spoiled = messages(kernel_id, source_spoiled(right))
    assert all("1 elements outside the arrays were overwritten" in one for one in spoiled)
    wrong = messages(kernel_id, one_wrong(right))
    assert all("1 of " in one and "elements are wrong; the first is [" in one for one in wrong)
    assert all("elements are wrong" in one for one in messages(kernel_id, lambda given: None))


@pytest.mark.parametrize("kernel_id", RIGHT)
def test_every_seed_and_size_has_a_case(kernel_id):
    found = judged(kernel_id, RIGHT[kernel_id], seeds=(4, 9))
    sizes = {one.case.shape for one in found}
    assert len(found) == 2 * len(sizes) and len(sizes) >= 2
    assert {one.case.seed for one in found} == {4, 9}


def test_the_sweep_judges_copies_and_additions_bit_for_bit():
    x, y = np.array([1.0, np.inf], np.float32), np.array([2.0, 1.0], np.float32)
    for op, inputs, output in (("vector_add", (x, y), x + y), ("ceiling_bytes", (x,), x)):
        gate = Gates().of(op)
        operands = SimpleNamespace(inputs=inputs, output=output.copy())
        reference = gate.reference(operands)
        assert gate.judge(operands, reference).passed
        operands.output[0] = np.nextafter(operands.output[0], np.float32(9))
        assert gate.judge(operands, reference).message == "1 elements are wrong"
    gate = Gates().of("vector_add_in_place")
    operands = SimpleNamespace(inputs=(x,), output=y.copy())
    reference = gate.reference(operands)
    assert not gate.judge(operands, reference).passed, "before the launch the output is y"
    operands.output[...] = x + y
    assert gate.judge(operands, reference).passed


# GELU

GELU = "pytorch.gelu"


def gelu(given: Operands) -> None:
    given.output[...] = pointwise.gelu(given.inputs[0]).astype(np.float32)


def tanh(given: Operands) -> None:
    x = given.inputs[0].astype(np.float64)
    given.output[...] = (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))).astype(np.float32)


def test_gelu_rounded_once_passes_in_every_case():
    found = judged(GELU, gelu)
    assert [one.verdict.message for one in found] == [""] * len(found)
    assert len(found) == 2 * 3 * 3 and {one.case.inputs for one in found} == set(pointwise.DISTRIBUTIONS)
    assert all(0 <= one.verdict.err_scaled_max < one.gamma * 2**24 for one in found)
    assert max(one.verdict.err_scaled_max for one in found) > 0, "rounding shows, in units of 2^-24 |x|"


class Wrong:
    """GELU with one thing wrong beside the numbers; counts its launches."""

    def __init__(self, what: str) -> None:
        self.what, self.launches = what, 0

    def __call__(self, given: Operands) -> None:
        self.launches += 1
        if self.what == "half":
            given.output[::2] = pointwise.gelu(given.inputs[0]).astype(np.float32)[::2]
            return
        gelu(given)
        if self.what == "race" and self.launches % 3 == 0:
            given.output.view(np.uint32)[-1] ^= 1
        if self.what == "outside":
            behind(given.output)[...] = 0
        if self.what == "source":
            behind(given.inputs[0])[...] = 0
        if self.what == "input":
            given.inputs[0].view(np.uint32)[0] ^= 1


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (tanh, "elements are wrong; the first is ["),
        (Wrong("half"), "some elements were never written"),
        (Wrong("race"), "launches on the same input differ: a race"),
        (Wrong("outside"), "elements outside the arrays were overwritten"),
        (Wrong("source"), "elements outside the arrays were overwritten"),
        (Wrong("input"), "the input was overwritten"),
    ],
)
def test_what_is_wrong_with_a_gelu_is_said(run, says):
    assert any(says in message for message in messages(GELU, run))


@pytest.mark.parametrize(
    ("x", "got", "passed"),
    [
        (np.inf, np.inf, True),
        (-np.inf, np.nan, True),
        (-np.inf, 0.0, False),
        (np.inf, 3e38, False),
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (0.0, 0.0, True),
        (1e-45, 1e-45, True),
        (1e-45, 0.0, True),
        (1e-45, 3e-45, False),
        (1.0, 0.8413447 + 1e-5, False),
    ],
)
def test_gelu_of_special_values(x, got, passed):
    values = np.array([x, 1.0], np.float32)
    result = np.array([got, pointwise.gelu(values)[1]], np.float32)
    assert pointwise.judge(values, result).passed == passed


def test_the_error_of_a_gelu_is_in_units_of_its_argument():
    x = np.array([2.0, -2.0], np.float32)
    right = pointwise.gelu(x)
    got = right.astype(np.float32)
    got[0] = np.float32(right[0] + 6 * 2.0**-24)
    assert pointwise.judge(x, got).err_scaled_max == pytest.approx(3, abs=1.1)


# Probes


def chain(given: Operands) -> None:
    given.output[...] = np.array([advance(given.shape.n, given.shape.k), 100, 50], np.uint32).view(np.int32)


def test_a_chain_must_end_at_its_number_and_its_clocks_advance():
    assert set(messages("ceilings.chain", chain)) == {""}

    def short(given: Operands) -> None:
        chain(given)
        given.output[0] = advance(given.shape.n, given.shape.k - 1) % 2**31

    def stands(cycles: int, nanoseconds: int):
        def run(given: Operands) -> None:
            chain(given)
            given.output[1:] = cycles, nanoseconds

        return run

    assert all("the chain ended at" in one for one in messages("ceilings.chain", short))
    assert all("its clocks say 0 cycles and 5 ns" in one for one in messages("ceilings.chain", stands(0, 5)))
    assert all("its clocks say 5 cycles and -1 ns" in one for one in messages("ceilings.chain", stands(5, -1)))
    assert set(messages("ceilings.chain", stands(1, 0))) == {""}, "the timer's step is coarser than a cycle"
    assert all("outside the arrays" in one for one in messages("ceilings.chain", too_far(chain)))


def streamed(given: Operands) -> None:
    words = given.inputs[0].view(np.uint32).reshape(-1, STREAM_CHUNK).sum(axis=1, dtype=np.uint64) % 2**32
    given.output.view(np.uint32).reshape(given.shape.k, -1)[...] = words.astype(np.uint32)


def test_a_stream_must_read_every_word_in_every_pass():
    assert set(messages("ceilings.stream_global", streamed)) == {""}

    def once(given: Operands) -> None:
        streamed(given)
        given.output.reshape(given.shape.k, -1)[0] = 0

    def writes_input(given: Operands) -> None:
        streamed(given)
        given.inputs[0][0] += 1

    assert all("the words read add up to" in one for one in messages("ceilings.stream_global", once))
    assert all("the input was overwritten" in one for one in messages("ceilings.stream_global", writes_input))
    assert all("outside the arrays" in one for one in messages("ceilings.stream_global", source_spoiled(streamed)))


def test_the_sweep_asks_of_a_chain_that_its_clock_advanced():
    gate = Gates().of("walk")
    moved = lambda values: gate.judge(SimpleNamespace(output=np.array(values, np.int32)), None)  # noqa: E731
    assert moved([9, 1, 0]).passed and moved([9]).passed
    assert moved([9, 0, 7]).message == "the clock did not advance"
    assert copies.destination(np.array([4, 0, 2, 6]), 2) == 6
