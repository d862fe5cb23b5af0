"""The article's tables as figures: both naive tables, both of Fast Mode with the fused split, and the sweep of d."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gemmrepro.experiments import Mark, Numbers, Panel, Printed, Table, mark, quotient

SIZES = (1024, 2048, 4096, 8192, 16384)
NAIVE, FAST, SWEEP = "naive", "fast mode + fused split", "d sweep"
PROGRAM, DGEMM = "Ozaki cuTile", "cublas.gemm"
FP64 = {"n": 16384, "article": "ozaki", "table": SWEEP}

COUNTS = {
    "gemms": "products of slices",
    "slices": "slices of A",
    "slices_b": "slices of B",
    "split": "splitting, share of the whole time",
    "kernel": "multiplying, share of the whole time",
}
PANELS = {
    "speed": Panel("Speed relative to cuBLAS FP64", "ratio", log=True, line=1.0),
    "error": Panel("Error against cuBLAS in FP64", "relative, Frobenius", log=True),
}


def _says(program: str, pairs: Any) -> str:
    """On which side of cuBLAS the speeds of a program lie in print and here."""
    speed = pairs[pairs["panel"] == "speed"]
    ahead = {side: (speed[side] > 1).sum() for side in ("published", "measured")}
    if ahead["measured"]:
        return ""
    if not ahead["published"]:
        return f"{program} is slower than cuBLAS FP64 at every size, in print and here"
    return f"{program} is up to {speed['published'].max():.3g} times as fast as cuBLAS FP64 in print, and slower here"


COMPARABLE = (
    "By the data sheets FP64 has 1/61 of the rate of bf16 on the article's chip and 1/15 on an H200, where the ratio "
    "is therefore lower. The table of numbers adds counts and shares of the time."
)


def _cublas(numbers: Numbers, n: int) -> Printed | None:
    """The published FP64 throughput of cuBLAS."""
    system, metric = "cuBLAS (PyTorch)", "throughput"
    if n == FP64["n"]:
        return numbers.printed(system, metric, **FP64)
    return numbers.printed(system, metric, article="cutile", dtype="fp64", n=n)


def _of_size(numbers: Numbers, table: str, dtype: str, kernel: str, n: int) -> Iterator[Mark]:
    there = partial(numbers.printed, PROGRAM, table=table, dtype=dtype, n=n)
    here = partial(numbers.found, "products", kernel, law="normal", n=n)
    name = dtype.removeprefix("fp8_")
    yield mark("gemms", name, n, there("gemms"), here("pairs"))
    yield mark("slices", name, n, there("slices_a"), here("slices_a"))
    yield mark("slices_b", name, n, there("slices_b"), here("slices_b"))
    parts, whole = {part: here(f"{part}_us") for part in ("split", "kernel")}, here("total_us")
    possible = all(part and whole and part.value <= whole.value for part in parts.values())
    for part, time in parts.items():
        share = quotient(time, whole) if possible else None
        yield mark(part, name, n, quotient(there(f"{part}_time"), there("total_time")), share)
    yield mark("speed", name, n, quotient(there("throughput"), _cublas(numbers, n)), here("ratio"))
    yield mark("error", name, n, there("relative_error"), here("err_article"))


def _by_size(table: str, kernels: dict[str, str]) -> Callable[[Numbers], Iterator[Mark]]:
    def marks(numbers: Numbers) -> Iterator[Mark]:
        for dtype, kernel in kernels.items():
            for n in SIZES:
                yield from _of_size(numbers, table, dtype, kernel, n)

    return marks


def _sweep(numbers: Numbers) -> Iterator[Mark]:
    n = FP64["n"]
    first_there = numbers.printed(PROGRAM, "total_time", table=SWEEP, n=n, d=9)
    first_here = numbers.found("products", "ozaki.fused_bf16_d9", "total_us", law="normal", n=n)
    for d in range(9, 4, -1):
        there = partial(numbers.printed, PROGRAM, table=SWEEP, n=n, d=d)
        here = partial(numbers.found, "products", f"ozaki.fused_bf16_d{d}", law="normal", n=n)
        yield mark("gemms", "bf16", d, there("gemms"), here("pairs"))
        gain_there = quotient(first_there, there("total_time"))
        yield mark("gain", "bf16", d, gain_there, quotient(first_here, here("total_us")))
        yield mark("speed", "bf16", d, there("ratio_to_cublas"), here("ratio"))
        yield mark("error", "bf16", d, there("relative_error"), here("err_article"))


TABLES = (
    Table(
        name="naive",
        family="ozaki",
        title="The naive program by size, fp16 and e4m3",
        panels=PANELS,
        counts=COUNTS,
        says=partial(_says, "The naive program"),
        marks=_by_size(NAIVE, {"fp16": "ozaki.naive_fp16", "fp8_e4m3": "ozaki.naive_fp8_e4m3"}),
        x_label="M = N = K",
        experiment="products",
        caption=f"The article's two tables of the naive program: all pairs of slices, split by the host. {COMPARABLE}",
    ),
    Table(
        name="fused",
        family="ozaki",
        title="Fast Mode and the fused split by size, bf16 and e4m3",
        panels=PANELS,
        counts=COUNTS,
        says=partial(_says, "Fast Mode with the fused split"),
        marks=_by_size(FAST, {"bf16": "ozaki.fused_bf16_d9", "fp8_e4m3": "ozaki.fused_e4m3_d16"}),
        x_label="M = N = K",
        experiment="products",
        caption=f"The article's two tables of the optimised program, d = 9 in bf16 and 16 in e4m3. {COMPARABLE}",
    ),
    Table(
        name="sweep_d",
        family="ozaki",
        title="Accuracy for speed: the cut-off d at 16384, bf16",
        panels={
            "speed": Panel("speed relative to cuBLAS FP64", "ratio", line=1.0),
            "gain": Panel("speed relative to d = 9", "ratio", line=1.0),
            "error": PANELS["error"],
        },
        counts={"gemms": COUNTS["gemms"]},
        says=partial(_says, "With a smaller d the fused program"),
        marks=_sweep,
        x_label="cut-off d",
        ticks="linear",
        experiment="products",
        caption=(
            "The article's last table. Gains are of either chip's own time at d = 9, speeds are over its own cuBLAS in "
            "FP64."
        ),
    ),
)
