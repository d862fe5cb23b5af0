"""The author's table of kernels by share of the chip's peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemmrepro import registry
from gemmrepro.experiments import Mark, Numbers, Panel, Table, mark, quotient

SIZE = 4096


def _shares(numbers: Numbers) -> Iterator[Mark]:
    ceiling = numbers.rate_here("fp16_acc32", "ceilings.mma_f16")
    for kernel in registry.kernels("ada"):
        system = kernel.story.published_system
        if system and kernel.rung:
            there = numbers.printed(system, "ratio_to_peak", table="author's repository", n=SIZE)
            here = quotient(numbers.swept(kernel.id, "tflops", SIZE, cache="cold"), ceiling)
            yield mark("share", "fp16, sums in fp32", f"{kernel.rung} {kernel.title.split(',')[0]}", there, here)


def _says(pairs: Any) -> str:
    """How much of its printed share the last kernel keeps."""
    there, here = pairs.iloc[-1][["published", "measured"]]
    return f"The last kernel takes {here:.0%} of mma.sync's rate here, {there:.0%} in print" if here < there else ""


TABLES = (
    Table(
        name="shares",
        family="ada",
        title="Shares of the peak at 4096",
        panels={"share": Panel("M = N = K = 4096", "share of the rate of mma.sync", line=1.0)},
        marks=_shares,
        says=_says,
        caption=(
            "The author's table: throughput over the rate of the chip. As published, that of the RTX 4090's data "
            "sheet; as measured, with a cold cache, what mma.sync reaches on this GPU in the suite's micro-kernel."
        ),
    ),
)
