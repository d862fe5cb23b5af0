"""What the reference says of the article's own slices, pairs and errors, without a GPU: rows of its numbers.csv."""

import csv
import math

import pytest
from support import ROOT

from gemmrepro.ozaki import pairs, programs

ROWS = list(csv.DictReader((ROOT / "articles/ozaki/numbers.csv").read_text().splitlines()))
NAIVE, FAST = "naive", ("fast mode + fused split", "d sweep")
E4M3_D = 16
"""The d that leaves the article's 130 of 14 x 14 pairs; it prints none for fp8."""


def published(metric: str, *tables: str) -> list[tuple[str, int, int, float]]:
    """(type, n, d, value) of each row."""
    return [
        (row["dtype"].removeprefix("fp8_"), int(row["n"]), int(row["d"] or E4M3_D), float(row["value"]))
        for row in ROWS
        if row["metric"] == metric and row["table"] in tables
    ]


def test_slices_and_pairs() -> None:
    counts = [published(metric, NAIVE) for metric in ("slices_a", "slices_b", "gemms")]
    assert len(counts[2]) == 9
    for (_, _, _, a), (_, _, _, b), (_, _, _, products) in zip(*counts, strict=True):
        assert len(pairs.select(int(a), int(b))) == products
    for dtype, n, _, slices in published("slices_a", *FAST) + published("slices_b", *FAST):
        assert programs.fused(n, dtype).count == slices
    for dtype, n, d, products in published("gemms", *FAST):
        slices = programs.fused(n, dtype).count
        assert len(pairs.select(slices, slices, d)) == products


def test_errors_of_the_fast_program() -> None:
    """All 13, within 15 %, by which its step and rho were found: independent elements of N(0, 1), one scale.

    The remainder after slice p is uniform within half its unit, with root mean square 2^(c - beta - p step) / sqrt(12),
    c = 3 for the maximum of 10^6 to 10^9 draws. Pairs add up as independent terms, so k drops out of the ratio.
    """
    rows = published("relative_error", *FAST)
    assert len(rows) == 13
    for dtype, n, d, error in rows:
        given = programs.fused(n, dtype)
        left = [1.0] + [2.0 ** (3 - given.beta - p * given.step) / math.sqrt(12) for p in range(given.count)]
        dropped = sum((left[p] * left[q]) ** 2 for p, q in pairs.dropped(given.count, given.count, d))
        assert error / math.sqrt(dropped + 2 * left[given.count] ** 2) == pytest.approx(1, rel=0.15)
