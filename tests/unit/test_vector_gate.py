"""The gate of copies, histograms and sums, without a GPU: right kernels in NumPy pass it, wrong ones do not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy
from records import record

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.gates import vectors
from gemmrepro.gates.gate import GUARD
from gemmrepro.gates.operations import Gates
from gemmrepro.operands import LAWS, Operands, draw_ids
from gemmrepro.operations import Problem, Shape, counts, nbytes, shape_of
from gemmrepro.registry import Launch, Step, keys

HISTOGRAM = Problem("histogram", "int32", "int32", "vector")


@pytest.fixture(autouse=True)
def numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    # The long lengths are for blocks that loop.
    monkeypatch.setattr(vectors, "LENGTHS", (1, 3, 31, 1023, 4096, 10_007, 20_011))


SESSION = SimpleNamespace(sync=lambda: None)


def kernel(op: str, dtype: str, **more) -> registry.Kernel:
    launch = Launch((1, 1, 1), (32, 1, 1))
    options = {"op": op, "dtype_in": dtype, "dtype_out": dtype, "layout": "vector", "max_elements": 1 << 62, **more}
    return record("memory.example", launch=lambda shape: launch, **options)


def failures(record: registry.Kernel, run) -> list[str]:
    def launch(operands: Operands) -> None:
        record.check(operands.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            run(np.asarray(operands.inputs[0]), operands.shape, operands.output)

    judged = list(Gates().of(record.compute.op).cases(SESSION, record, launch, [5]))
    assert len(judged) > 20
    return [one.verdict.message for one in judged if not one.verdict.passed]


def right_counts(ids, shape, output):
    output[...] = vectors.counts_of(ids, shape.k, np)


def test_a_right_histogram_passes():
    assert failures(kernel("histogram", "int32"), right_counts) == []


def _drop_outside(ids, shape, output):
    right_counts(ids, shape, output)
    output[-1] = 0


def _clamp(ids, shape, output):
    output[...] = np.bincount(np.clip(ids, 0, shape.k), minlength=shape.k + 1)


def _wrap(ids, shape, output):
    output[...] = np.bincount(ids.astype(np.int64) % (shape.k + 1), minlength=shape.k + 1)


@pytest.mark.parametrize("wrong", [_drop_outside, _clamp, _wrap], ids=lambda each: each.__name__)
def test_ids_outside_are_counted_apart_or_the_gate_fails(wrong):
    assert failures(kernel("histogram", "int32"), wrong)


def test_counts_kept_from_the_launch_before_fail():
    kept = {}

    def run(ids, shape, output):
        found = vectors.counts_of(ids, shape.k, np)
        output[...] = found + kept.get(shape.k, 0)
        kept[shape.k] = np.asarray(output).copy()

    found = failures(kernel("histogram", "int32"), run)
    assert any("left over" in message for message in found)


def test_bins_that_a_histogram_does_not_take_are_refused_by_name():
    record = kernel("histogram", "int32", at_most={"k": 256})
    assert failures(record, right_counts) == []
    with pytest.raises(UserError, match=r"memory\.example cannot run 1x8x257: K = 257 exceeds its maximum of 256"):
        record.check(Shape(1, 8, 257))


def test_every_size_that_is_refused_and_every_one_after_it_has_a_case():
    record = kernel("histogram", "int32", at_most={"k": 256}, gate_shapes=(Shape(1, 77, 200),))

    def launch(operands: Operands) -> None:
        record.check(operands.shape)
        right_counts(np.asarray(operands.inputs[0]), operands.shape, operands.output)

    judged = list(Gates().of("histogram").cases(SESSION, record, launch, [5, 6]))
    refused = [one.case.shape.k for one in judged if one.case.inputs == "refused size"]
    assert refused == [bins for bins in vectors.BINS if bins > 256] * 2
    own = [one.case.inputs for one in judged if one.case.shape == Shape(1, 77, 200)]
    assert own == ["uniform", "some outside"] * 2
    assert all(one.verdict.passed for one in judged)

    def takes_all(operands: Operands) -> None:
        if operands.inputs:
            launch(operands)

    judged = Gates().of("histogram").cases(SESSION, record, takes_all, [5])
    assert {one.verdict.message for one in judged if not one.verdict.passed} == {
        f"1x{vectors.LENGTHS[-2]}x{bins} should be refused" for bins in vectors.BINS if bins > 256
    }


def test_the_input_of_a_vector_operation_must_stay_as_it_is():
    def run(ids, shape, output):
        right_counts(ids, shape, output)
        ids[-1] += 1

    said = failures(kernel("histogram", "int32"), run)
    assert said and all("the input was overwritten" in message for message in said)


def test_a_sum_of_small_integers_must_be_exact():
    def run(values, shape, output):
        output[0] = values.sum() * np.float32(1 + 2.0**-23)

    said = failures(kernel("reduce", "fp32"), run)
    assert any("the sum of small integers is" in message for message in said)


def test_sums_in_any_order_pass_and_halves_do_not():
    record = kernel("reduce", "fp32")

    def sum_up(values, shape, output):
        output[0] = values.sum()

    def one_by_one(values, shape, output):
        # 32 sums side by side: every chain is as long as the gate allows at most for these lengths.
        lanes = np.zeros(4096, np.float32)
        for start in range(0, len(values), 4096):
            part = values[start : start + 4096]
            lanes[: len(part)] += part
        output[0] = lanes.sum()

    assert failures(record, sum_up) == []
    assert failures(record, one_by_one) == []
    for wrong in (
        lambda values: values.astype(np.float16).astype(np.float32).sum(),
        lambda values: values[:-1].sum(),
        lambda values: np.nansum(values),
        lambda values: np.nan_to_num(values, posinf=3e38).sum(),
    ):

        def run(values, shape, output, wrong=wrong):
            output[0] = wrong(values)

        assert failures(record, run)


def test_a_copy_must_be_the_same_bits():
    record = kernel("vector_copy", "fp16")

    def right(values, shape, output):
        output[...] = values

    def quiet(values, shape, output):
        """A copy through arithmetic makes quiet NaNs of signalling ones."""
        bits = values.view(np.uint16)
        nan = (bits & 0x7FFF) > 0x7C00
        output.view(np.uint16)[...] = np.where(nan, bits | 0x200, bits)

    def short(values, shape, output):
        output[: shape.n // 8 * 8] = values[: shape.n // 8 * 8]

    assert failures(record, right) == []
    assert failures(record, quiet)
    assert failures(record, short)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("first", [0, -1])
def test_a_copy_must_not_go_beyond_the_ends(dtype, first):
    """What lies around the source is not what lies around the target, or the guards would be copied over each other."""

    def whole(array):
        """The array with the bands around it."""
        while array.base is not None:
            array = array.base
        return array

    def too_many(given, shape, output):
        for array in (given, output):
            assert np.shares_memory(whole(array)[GUARD:][: shape.n], array)
        source, target = (whole(array)[GUARD + first :][: shape.n + 1] for array in (given, output))
        target[...] = source

    said = failures(kernel("vector_copy", dtype), too_many)
    assert len(said) > 20 and all("1 elements outside the arrays were overwritten" in one for one in said)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bins", [1, 256, 5_000_000])
def test_ids_of_every_law_lie_in_the_bins(law, bins):
    ids = draw_ids(law, 50_000, bins, 3, np)
    assert ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < bins
    share = np.bincount(ids, minlength=1).max() / len(ids)
    if law == "constant" or bins == 1:
        assert share == 1
    elif law == "skewed":
        assert share == pytest.approx(np.log(2) / np.log(bins + 1), rel=0.1)
    else:
        assert share < 3 / min(bins, 1000)


def test_what_a_histogram_holds_and_moves():
    shape = shape_of("histogram", 1 << 28)
    assert shape == Shape(1, 1 << 28, 256)
    assert counts(HISTOGRAM, shape) == ((1 << 28,), 257)
    assert nbytes(HISTOGRAM, shape) == 4 * ((1 << 28) + 257)
    ids, output = (SimpleNamespace(data=SimpleNamespace(ptr=address)) for address in (64, 128))
    operands = Operands(HISTOGRAM, Shape(1, 9, 4), (ids,), output)
    record = kernel("histogram", "int32")
    found = operands.arguments(record)
    assert found == (64, 9, 4, 128)
    assert (found[1].dtype, found[2].dtype) == (np.int64, np.int32)
    own = {"own": SimpleNamespace(data=SimpleNamespace(ptr=1000))}
    step = operands.arguments(record.with_call(arguments=(7, "k", "own", "n=5", "c")), own)
    assert step == (7, 4, 1000, 5, 128)
    assert (step[0].dtype, step[3].dtype) == (np.int32, np.int64)


SUMS = [each for each in registry.kernels("memory") if each.compute.op == "reduce" and each.run.steps]


@pytest.mark.parametrize("record", SUMS, ids=lambda record: record.id)
@pytest.mark.parametrize("n", [1, 255, 257, 540_673, 1 << 28])
def test_the_passes_of_a_sum_end_in_one_element(record, n):
    """Each pass reads what the one before wrote, whole, and no two of them share memory."""
    steps = record.run.steps(Shape(1, n, 1))
    room = {name: one.lengths(Shape(1, n, 1))[0] for name, one in record.run.workspace.items()}
    source, length = "a", n
    for step in steps:
        given, long, target = step.arguments
        assert (given, long) == (source, f"n={length}")
        blocks = step.launch(Shape(1, n, 1)).grid[0]
        assert target != source
        if target != "c":
            assert blocks <= room[target]
        source, length = target, blocks
    assert (source, length) == ("c", 1)


def test_every_entry_of_the_steps_is_compiled_and_judged_and_changes_the_declared_parts():
    record = registry.kernel("memory.histogram_merged_waves")
    assert [code.code.entry for code in record.codes] == ["histogram_merged_waves", "merge_counts"]
    assert record.codes[0].promises.expects == record.promises.expects and record.codes[1].promises.expects == ()
    lone = record.with_run(steps=lambda shape: record.steps_at(shape)[:1])
    assert keys.compiled(lone) != keys.compiled(record) and keys.judged(lone) != keys.judged(record)
    with pytest.raises(UserError, match="one of its steps"):
        kernel("histogram", "int32", steps=(Step("clear", record.launch, ("k", "c")),))
    shape = Shape(1, 1000, 256)
    first, second = record.steps_at(shape)
    assert second.arguments[0] == first.launch(shape).grid[0]
    assert record.workspace_bytes(shape) == 4 * second.arguments[0] * 257
