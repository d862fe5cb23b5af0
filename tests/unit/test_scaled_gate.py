"""The gate of products with block scales: what it must let pass, and what it must not."""

from __future__ import annotations

import csv
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import NumpyCupy
from spoiled_launches import SPOILED, spoil_input

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.core.files import load_module
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import path_of
from gemmrepro.gates import scaled
from gemmrepro.gates.gate import Case
from gemmrepro.gates.gemm_cases import gemm_shapes
from gemmrepro.gates.scaled import (
    EXACT,
    INPUTS,
    REPEATS,
    Drawn,
    cases_of,
    draw,
    judge_numbers,
    run_case,
    scaled_gamma,
    scaled_operands,
)
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape, counts

MODEL = load_module("fp8_experiments", path_of("fp8"))
PROBLEM = Problem("gemm_scaled", "fp8_e4m3", "fp16", "row,col,row")
SMALL = Shape(20, 136, 400)


def tensor_core(drawn: Drawn, shape: Shape, every: int = 1) -> np.ndarray:
    """C as a kernel has it that scales sums of `every` times 128 products of a tensor core that keeps 14 bits."""
    a, b = (widen(values, "fp8_e4m3") for values in (drawn.a, drawn.b))
    of_b = np.repeat(drawn.scale_b, 128, axis=0)[: shape.n]
    total = np.zeros((shape.m, shape.n), np.float32)
    for step in range(0, -(-shape.k // 128), every):
        part = slice(128 * step, 128 * (step + every))
        fresh = MODEL.modelled(a[:, part], b[:, part], 0)
        total += (fresh * drawn.scale_a[step][:, None] * of_b[:, step]).astype(np.float32)
    return narrow(total, "fp16")


def passes(got: np.ndarray, drawn: Drawn, case: Case) -> bool:
    return judge_numbers(got, drawn, case, PROBLEM)[0].passed


@pytest.mark.parametrize("law", INPUTS)
def test_a_right_kernel_passes(law: str) -> None:
    case = Case(SMALL, 1.0, 0.0, law, 3)
    drawn = draw(PROBLEM, case)
    verdict, reference = judge_numbers(tensor_core(drawn, SMALL), drawn, case, PROBLEM)
    assert verdict.passed, verdict.message
    if law == EXACT:
        assert (tensor_core(drawn, SMALL) == reference.astype(np.float16)).all()


def test_operands_are_scaled_by_row_and_by_block() -> None:
    drawn = draw(PROBLEM, Case(SMALL, 1.0, 0.0, "normal", 1))
    a, b = scaled_operands(drawn.arrays, SMALL, "fp8_e4m3")
    wide_a, wide_b = (widen(values, "fp8_e4m3") for values in (drawn.a, drawn.b))
    for row, k in ((0, 0), (3, 127), (3, 128), (19, 399)):
        assert a[row, k] == wide_a[row, k] * drawn.scale_a[k // 128, row].astype(np.float64)
    for column, k in ((0, 0), (127, 300), (128, 300), (135, 399)):
        assert b[k, column] == wide_b[column, k] * drawn.scale_b[column // 128, k // 128].astype(np.float64)


PLANTS = {
    "a step's scale for the next": lambda d: Drawn(d.a, d.b, np.roll(d.scale_a, 1, axis=0), d.scale_b),
    "the scale of the eighth row after": lambda d: Drawn(d.a, d.b, np.roll(d.scale_a, 8, axis=1), d.scale_b),
    "the scale of B's neighbour": lambda d: Drawn(d.a, d.b, d.scale_a, np.roll(d.scale_b, 1, axis=0)),
    "no scale of B": lambda d: Drawn(d.a, d.b, d.scale_a, np.ones_like(d.scale_b)),
    "the last products left out": lambda d: Drawn(np.where(np.arange(400) < 392, d.a, 0), d.b, d.scale_a, d.scale_b),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_fails(plant: str) -> None:
    failed = []
    for law in ("normal", EXACT):
        case = Case(SMALL, 1.0, 0.0, law, 2)
        drawn = draw(PROBLEM, case)
        wrong = tensor_core(PLANTS[plant](drawn), SMALL)
        reference = judge_numbers(wrong, drawn, case, PROBLEM)[1]
        exact = (wrong == reference.astype(np.float16)).all()
        failed.append(not passes(wrong, drawn, case) or (law == EXACT and not exact))
    assert any(failed)


def test_sums_that_stay_in_the_tensor_core_fail_the_long_case() -> None:
    """With scales of one, for a kernel could not leave sums of different scales there."""
    kernel = registry.kernel("fp8.scaled")
    (long,) = [case for case in cases_of(kernel, [1]) if case.shape.k == 4096 and case.inputs == "uniform"]
    case = Case(Shape(16, 24, long.shape.k), 1.0, 0.0, "uniform", 1)
    drawn = draw(PROBLEM, case)
    ones = Drawn(drawn.a, drawn.b, np.ones_like(drawn.scale_a), np.ones_like(drawn.scale_b))
    assert passes(tensor_core(ones, case.shape), ones, case)
    assert not passes(tensor_core(ones, case.shape, every=32), ones, case)
    assert scaled_gamma(128) < scaled_gamma(4096) < 1.001 * scaled_gamma(128) < 0.0171


def test_timed_operands_fill_the_range_of_their_type() -> None:
    shape = Shape(130, 200, 300)
    arrays = PROBLEM.operation.draw(PROBLEM, shape, 1, np)
    assert [array.size for array in arrays] == list(counts(PROBLEM, shape)[0])
    a, b = scaled_operands(arrays, shape, "fp8_e4m3")
    assert abs(a.std() - 1) < 0.02 and abs(b.std() - 1) < 0.02
    codes = widen(arrays[0], "fp8_e4m3").reshape(130, 300)
    assert (abs(codes[:, :128]).max(axis=1) == 448).all() and np.isfinite(codes).all()


def test_the_model_of_the_tensor_core_is_what_cublas_was_seen_to_lose() -> None:
    """Recorded errors of cublasLt's fast mode on normal operands, as 2^-13 of the largest term predicts them."""
    path = Path(ROOT) / "reports/recorded/h200/cutile/summary.csv"
    with path.open(newline="") as file:
        seen = {
            int(row["k"]): float(row["err_fro"])
            for row in csv.DictReader(file)
            if row["kernel"] == "cublas.gemm_fast" and row["dtype"] == "fp8_e4m3" and row["cache"] == "warm"
        }
    for k in (1024, 4096):
        a, b = (widen(codes, "fp8_e4m3") for codes in MODEL.draw("normal", 32, k, 1))
        c = MODEL.modelled(a, b, 0).astype(np.float16).astype(np.float64)
        expected = MODEL.errors(c, a @ b.T, abs(a) @ abs(b).T)["fro"]
        assert abs(expected / seen[k] - 1) < 0.1, (k, expected, seen[k])


def test_exact_operands_have_scales_that_keep_them_exact() -> None:
    case = Case(Shape(200, 300, 2000), 1.0, 0.0, EXACT, 1)
    drawn = draw(PROBLEM, case)
    for scale in (drawn.scale_a, drawn.scale_b):
        assert set(np.log2(scale).ravel()) <= {-2, -1, 0, 1, 2} and len(np.unique(scale)) > 2


@pytest.mark.parametrize("place", range(4))
def test_a_launch_that_writes_into_one_input_fails(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    case = Case(SMALL, 1.0, 0.0, "normal", 3)
    right, numbers = tensor_core(draw(PROBLEM, case), SMALL), count(1)
    session = SimpleNamespace(sync=lambda: None)

    def launch(given: Operands) -> None:
        given.output[...] = right.reshape(given.output.shape)

    def spoils(given: Operands) -> None:
        launch(given)
        if next(numbers) == REPEATS:
            spoil_input(given, place)

    assert run_case(session, launch, case, PROBLEM).verdict.passed
    assert run_case(session, spoils, case, PROBLEM).verdict.message == "an input was overwritten"


@pytest.mark.parametrize("message", SPOILED)
def test_a_launch_that_does_more_or_less_than_write_c_fails(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    case, numbers = Case(SMALL, 1.0, 0.0, EXACT, 3), count()
    right = tensor_core(draw(PROBLEM, case), SMALL)

    def spoils(given: Operands) -> None:
        given.output[...] = right.reshape(given.output.shape)
        SPOILED[message](given, next(numbers))

    assert message in run_case(SimpleNamespace(sync=lambda: None), spoils, case, PROBLEM).verdict.message


def test_every_case_is_run_and_apart_from_them_those_that_fill_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled, "run_case", lambda session, launch, case, problem: case)
    monkeypatch.setattr(scaled, "refusal_cases", lambda kernel: iter(["refusals"]))
    kernel, gate = registry.kernel("fp8.scaled"), scaled.ScaledGemm()
    every = cases_of(kernel, [1, 2])
    assert list(gate.cases(None, kernel, None, [1, 2])) == [*every, "refusals"]
    large = gemm_shapes(kernel)[2]
    assert list(gate.large_cases(None, kernel, None, [1, 2])) == [case for case in every if case.shape == large]
