"""What the reference says of the article's own slices and pairs, without a GPU: rows of its numbers.csv."""

import csv

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
