"""What the reference says of the article's own numbers, without a GPU: rows of its numbers.csv."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from support import ROOT

from gemmrepro.ozaki import bounds, exact, exactness, inputs, pairs, programs
from gemmrepro.ozaki.splitting import Split, multiply, split

ROWS = list(csv.DictReader((ROOT / "articles/ozaki/numbers.csv").read_text().splitlines()))
FAST = "fast mode + fused split"
E4M3_D = 16
"""The d that leaves the article's 130 of 14 x 14 pairs; it prints none for fp8."""


def name(row: dict[str, str]) -> str:
    return row["dtype"].removeprefix("fp8_")


def fused_split(x: np.ndarray, k: int, fmt: str) -> Split:
    """The article's second split, whose last residual is not zero."""
    parameters = programs.fused(k, fmt)
    return split(x, parameters.rho, count=parameters.count, step=parameters.step)


def published(metric: str, *tables: str) -> list[dict[str, str]]:
    found = [row for row in ROWS if row["metric"] == metric and row["table"] in tables]
    assert found
    return found


def test_pairs_of_the_naive_program() -> None:
    counts = {
        (row["dtype"], row["n"], row["metric"]): int(row["value"])
        for row in ROWS
        if row["unit"] == "count" and row["table"] == "naive"
    }
    products = [key for key in counts if key[2] == "gemms"]
    assert len(products) == 9
    for dtype, n, _ in products:
        assert (
            len(pairs.select(counts[dtype, n, "slices_a"], counts[dtype, n, "slices_b"])) == counts[dtype, n, "gemms"]
        )


def test_slices_and_pairs_of_the_fast_program() -> None:
    for row in published("slices_a", FAST) + published("slices_b", FAST):
        assert programs.fused(int(row["n"]), name(row)).count == int(row["value"])
    for row in published("gemms", FAST, "d sweep"):
        slices = programs.fused(int(row["n"]), name(row)).count
        assert len(pairs.select(slices, slices, int(row["d"] or E4M3_D))) == int(row["value"])
    assert 39 / 49 == pytest.approx(float(published("gemms", "text")[0]["value"]))


@pytest.mark.parametrize("fmt", ["fp16", "e4m3"])
def test_slices_of_the_naive_program_on_normal_operands(fmt: str) -> None:
    """Split for real at 1024. The smallest of 10^6 draws decides on the last slice: one either way."""
    a, b = inputs.normal(np.random.default_rng(1024), 1024, 1024, 1024)
    rho = exactness.rho(1024, exactness.named(fmt))
    for operand, metric in ((a, "slices_a"), (b, "slices_b")):
        (row,) = (row for row in published(metric, "naive") if row["n"] == "1024" and name(row) == fmt)
        assert abs(len(split(operand, rho)) - int(row["value"])) <= 1


def test_slices_of_the_naive_program_at_every_size() -> None:
    """By bits alone: from 2^3, above the maximum, to the last bit of the smallest of n^2 draws, sqrt(pi / 2) / n^2."""
    for metric in ("slices_a", "slices_b"):
        for row in published(metric, "naive"):
            n = int(row["n"])
            beta = exactness.MANTISSA - exactness.rho(n, exactness.named(name(row)))
            last_bit = math.floor(math.log2(math.sqrt(math.pi / 2) / n**2)) - 52
            assert abs(math.ceil((3 - last_bit) / (beta + 1)) - int(row["value"])) <= 1


def test_errors_of_the_fast_program() -> None:
    """All 13, within 15 %: which is how its step and its rho were found (see `article`)."""
    rows = published("relative_error", FAST, "d sweep")
    assert len(rows) == 13
    for row in rows:
        parameters = programs.fused(int(row["n"]), name(row))
        shape = (parameters.beta, parameters.step, parameters.count)
        predicted = bounds.predicted_fro(*shape, int(row["d"] or E4M3_D))
        assert float(row["value"]) / predicted == pytest.approx(1, rel=0.15)


def test_other_readings_of_the_fast_program_do_not_fit() -> None:
    """Measuring each maximum again, steps of m2 bits, rho for a tile of 128: each is off by more than a factor of 2."""
    rows = {int(row["d"]): float(row["value"]) for row in published("relative_error", "d sweep")}
    for beta, step in ((5, 6), (8, 8), (8, 9), (8, 7), (5, 8)):
        misses = [rows[d] / bounds.predicted_fro(beta, step, 7, d) for d in rows]
        assert max(max(misses), 1 / min(misses)) > 2


@pytest.mark.parametrize(("fmt", "d"), [("bf16", 9), ("e4m3", E4M3_D)])
def test_the_fast_program_computed_here(fmt: str, d: int) -> None:
    """At n = 192 with the maximum and the rho of n = 1024, in the article's measure against an FP64 product."""
    a, b = inputs.normal(np.random.default_rng(6), 192, 192, 192)
    a[0, 0] = b[0, 0] = 5.0
    c = multiply(fused_split(a, 1024, fmt), fused_split(b, 1024, fmt), d=d)
    (row,) = (row for row in published("relative_error", FAST) if row["n"] == "1024" and name(row) == fmt)
    assert exact.articles(c, a @ b) / float(row["value"]) == pytest.approx(1, rel=0.2)


def test_the_naive_programs_error_is_that_of_the_fp64_product_it_is_compared_with() -> None:
    """All pairs, nothing dropped: C is right to the last bits, and the distance to a DGEMM is the DGEMM's."""
    a, b = inputs.normal(np.random.default_rng(7), 40, 40, 1024)
    c = multiply(programs.naive_split(a, 1024, "fp16"), programs.naive_split(b, 1024, "fp16"))
    reference = exact.product(a, b)
    nearest = reference.nearest()
    sequential = np.zeros_like(c)
    for h in range(1024):
        sequential += a[:, h : h + 1] * b[h]
    ours, theirs = (exact.frobenius(reference.minus(x), nearest) for x in (c, sequential))
    assert ours < 2.0**-52 and theirs > 4 * ours
    assert exact.articles(c, sequential) / theirs == pytest.approx(1, rel=0.1)
    (row,) = (row for row in published("relative_error", "naive") if row["n"] == "1024" and name(row) == "fp16")
    assert 0.3 < theirs / float(row["value"]) < 3


def test_the_articles_d_is_not_the_least_that_its_bound_allows() -> None:
    """2 sqrt(k) u |A||B| is met with d = 7 or 8 where the article takes 9."""
    a, b = inputs.normal(np.random.default_rng(8), 96, 96, 1024)
    size = np.abs(a) @ np.abs(b)
    parts = fused_split(a, 1024, "bf16"), fused_split(b, 1024, "bf16")
    assert bounds.smallest_d(*parts, size, "worst") <= 8
    assert bounds.smallest_d(*parts, size, "random") <= bounds.smallest_d(*parts, size, "worst")
