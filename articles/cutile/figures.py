"""The article's four tables by share of the chip's peak, and what e5m2 gains over fp16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gemmrepro.experiments import Mark, Measured, Numbers, Panel, Table, listed, mark, quotient

SIZES = (1024, 2048, 4096, 8192, 16384, 32768)
PROGRAM, CUBLAS = "cuTile matmul", "cuBLAS (PyTorch)"
TYPES = {
    "fp16": ("fp16", "fp16_acc32"),
    "fp8_e5m2": ("fp8_e5m2", "fp8"),
    "tf32": ("tf32", "tf32"),
    "fp64": ("fp64", "fp64_tensor"),
}
"""By type: the kernel's suffix, and the rate that its products are compared with."""


def _here(numbers: Numbers, suffix: str, column: str, n: int) -> Measured | None:
    """Of the article's program with its constants; an experiment ran the largest size, which the sweep has not."""
    kernel = f"cutile.published_{suffix}"
    return numbers.swept(kernel, column, n) or numbers.found("largest", kernel, column, n=n)


def _shares(numbers: Numbers) -> Iterator[Mark]:
    for dtype, (suffix, rate) in TYPES.items():
        peak_here = numbers.rate_here(rate)
        for n in SIZES:
            cells = partial(numbers.printed, metric="throughput", dtype=dtype, n=n)
            own, library = cells(PROGRAM), cells(CUBLAS)
            peak = numbers.rate(own.hardware, rate) if own else None
            speed, ratio = (_here(numbers, suffix, column, n) for column in ("tflops", "ratio"))
            if own or speed:
                yield mark(dtype, "cuTile", n, quotient(own, peak), quotient(speed, peak_here))
            if library or ratio:
                yield mark(dtype, "cuBLAS", n, quotient(library, peak), quotient(quotient(speed, ratio), peak_here))


def _gain(numbers: Numbers) -> Iterator[Mark]:
    for n in SIZES:
        there = [numbers.printed(PROGRAM, "throughput", dtype=dtype, n=n) for dtype in ("fp8_e5m2", "fp16")]
        here = [_here(numbers, dtype, "tflops", n) for dtype in ("fp8_e5m2", "fp16")]
        yield mark("gain", "e5m2 over fp16", n, quotient(*there), quotient(*here))


def _keeps(pairs: Any) -> str:
    """In which types cuTile loses a third of its printed share or more at the largest size."""
    own = pairs[pairs["series"] == "cuTile"].sort_values("x").groupby("panel", sort=False).last()
    kept = own["measured"] / own["published"]
    lost, held = list(kept.index[kept < 0.67]), list(kept.index[kept >= 1])
    if not lost or not held:
        return ""
    kept = f"At each type's largest size cuTile keeps its share of the chip in {listed(held)}"
    return f"{kept} and loses a third or more in {listed(lost)}"


def _slower(pairs: Any) -> str:
    """Whether e5m2 gains in print and loses here, at the largest size."""
    last = pairs.sort_values("x").iloc[-1]
    gains = last["published"] > 1 > last["measured"]
    said = f"At {last['x']:.0f} e5m2 is {last['published']:.2g} times as fast as fp16 in print and slower than it here"
    return said if gains else ""


TABLES = (
    Table(
        name="shares",
        family="cutile",
        title="Shares of the peak by type and size",
        panels={dtype: Panel(dtype, "share of the chip's rate", log=dtype == "fp64") for dtype in TYPES},
        marks=_shares,
        says=_keeps,
        x_label="M = N = K",
        caption=(
            "The article's four tables, here by its program with its constants (C1.1), warm: throughput over the "
            "chip's dense rate in the type, by the data sheet of either, except fp16 here, measured by the suite. "
            "The article's cuBLAS is that of PyTorch, which multiplies no e5m2."
        ),
    ),
    Table(
        name="fp8_gain",
        family="cutile",
        title="What e5m2 gains over fp16",
        panels={"gain": Panel("cuTile matmul", "ratio of throughputs", line=1.0)},
        marks=_gain,
        says=_slower,
        x_label="M = N = K",
        caption="The article's program with its constants (C1.1), warm; twice is what the tensor cores' rates allow.",
    ),
)
