"""What the reference says of the article's own numbers, without a GPU: rows of its numbers.csv."""

import csv
import math

import pytest
from support import ROOT

from gemmrepro.ozaki import pairs, programs

ROWS = list(csv.DictReader((ROOT / "articles/ozaki/numbers.csv").read_text().splitlines()))
FAST = "fast mode + fused split"
E4M3_D = 16
"""The d that leaves the article's 130 of 14 x 14 pairs; it prints none for fp8."""


def name(row: dict[str, str]) -> str:
    return row["dtype"].removeprefix("fp8_")


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


def predicted_fro(beta: int, step: int, slices: int, d: int) -> float:
    """Expected ||C - C*||_F / ||C*||_F of a split by fixed steps with one scale; independent elements of N(0, 1).

    The remainder after slice p is uniform within half its unit, with root mean square 2^(c - beta - p step) / sqrt(12),
    c = 3 for the maximum of 10^6 to 10^9 draws (4.9 to 6.1), and uncorrelated; slice p + 1 is that, rounded. Pairs add
    up as independent terms, ||A_p B_q||_F = ||A_p|| ||B_q|| / sqrt(k), so k drops out of the ratio.
    """
    left = [1.0] + [2.0 ** (3 - beta - p * step) / math.sqrt(12) for p in range(slices)]
    square = sum((left[p] * left[q]) ** 2 for p, q in pairs.dropped(slices, slices, d)) + 2 * left[slices] ** 2
    return math.sqrt(square)


def test_errors_of_the_fast_program() -> None:
    """All 13, within 15 %: which is how its step and its rho were found (see `article`)."""
    rows = published("relative_error", FAST, "d sweep")
    assert len(rows) == 13
    for row in rows:
        parameters = programs.fused(int(row["n"]), name(row))
        shape = (parameters.beta, parameters.step, parameters.count)
        predicted = predicted_fro(*shape, int(row["d"] or E4M3_D))
        assert float(row["value"]) / predicted == pytest.approx(1, rel=0.15)
