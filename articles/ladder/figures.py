"""The article's roadmap by share of the chip's peak and by step, and its table of the memory hierarchy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gemmrepro import registry
from gemmrepro.experiments import Mark, Numbers, Panel, Printed, Table, mark, quotient

SIZE = 4096
ANY = "any GPU"
CHAIN, WALK_SHARED, WALK_GLOBAL = "ceilings.chain", "ceilings.walk_shared", "ceilings.walk_global"
STREAM_SHARED, STREAM_GLOBAL = "ceilings.stream_shared", "ceilings.stream_global"
LATENCIES = {
    "registers": (CHAIN, "registers"),
    "shared memory": (WALK_SHARED, "shared memory"),
    "L2 cache": (WALK_GLOBAL, "L2"),
    "global memory (HBM)": (WALK_GLOBAL, "DRAM"),
}
L2_BYTES = 16 << 20


def _levels() -> list[registry.Kernel]:
    """The kernels of the roadmap."""
    return [kernel for kernel in registry.kernels("ladder") if kernel.story.published_system]


def _roadmap(numbers: Numbers) -> Iterator[Mark]:
    ceiling = numbers.rate_here("fp32")
    for kernel in _levels():
        there = numbers.printed(str(kernel.story.published_system), "throughput", n=SIZE)
        peak = numbers.rate(there.hardware, "fp32") if there else None
        share = quotient(there, peak * 1e3 if peak else None)
        here = quotient(numbers.swept(kernel.id, "tflops", SIZE), ceiling)
        yield mark("share", "fp32", f"{kernel.rung} {kernel.title}", share, here)
    for before, kernel in pairwise(_levels()):
        speeds = [numbers.printed(str(each.story.published_system), "throughput", n=SIZE) for each in (kernel, before)]
        found = [numbers.swept(each.id, "tflops", SIZE) for each in (kernel, before)]
        yield mark("step", "fp32", f"{kernel.rung} over {before.rung}", quotient(*speeds), quotient(*found))


def _of_article(numbers: Numbers, system: str, metric: str) -> Printed | None:
    """A number of the table, which names no GPU."""
    found = numbers.printed(system, metric)
    return replace(found, hardware=ANY) if found else None


def _hierarchy(numbers: Numbers) -> Iterator[Mark]:
    for system, (probe, level) in LATENCIES.items():
        here = numbers.found("latency", probe, "cycles", level=level)
        yield mark("latency", "probe", system, _of_article(numbers, system, "latency"), here)
    shared = numbers.found("bandwidth", STREAM_SHARED, "tbps", level="shared memory")
    yield mark("bandwidth", "probe", "shared memory", _of_article(numbers, "shared memory", "bandwidth"), shared)
    cached = numbers.found("bandwidth", STREAM_GLOBAL, "tbps", level="L2", bytes=L2_BYTES)
    yield mark("bandwidth", "probe", "L2 cache", _of_article(numbers, "L2 cache", "bandwidth"), cached)
    ends = [_of_article(numbers, f"global memory (HBM), {end}", "bandwidth") for end in ("lowest", "highest")]
    dram = numbers.found("bandwidth", STREAM_GLOBAL, "tbps", level="DRAM")
    yield Mark("bandwidth", "probe", "global memory (HBM)", tuple(end for end in ends if end), dram)


def _climbs(pairs: Any) -> str:
    """Which levels take a larger share of the chip here than in print."""
    shares = pairs[pairs["panel"] == "share"]
    more = shares["measured"] > shares["published"]
    if more.all():
        return "Every level takes a larger share of the chip here than in print"
    return "Every level but the first takes a larger share of the chip here than in print" if more[1:].all() else ""


def _slower(pairs: Any) -> str:
    """Whether each level of the memory is slower to answer and wider than in print."""
    most = pairs.groupby(["panel", "x"])[["published", "measured"]].max()
    return (
        "Memory takes longer to answer than in print, and carries more"
        if (most.diff(axis=1) > 0)["measured"].all()
        else ""
    )


TABLES = (
    Table(
        name="roadmap",
        family="ladder",
        title="The roadmap by share of the peak, and its steps",
        panels={
            "share": Panel("M = N = K = 4096", "share of the chip's fp32 rate", log=True),
            "step": Panel("Each level over the one before", "ratio of speeds", line=1.0),
        },
        marks=_roadmap,
        says=_climbs,
        caption=(
            "The article's roadmap: throughput over the chip's fp32 rate, of the data sheet as published and of the "
            "suite's micro-kernel as measured, and the gain of each step on the same GPU."
        ),
    ),
    Table(
        name="hierarchy",
        family="ladder",
        title="The memory hierarchy",
        panels={
            "latency": Panel("Latency", "cycles", log=True),
            "bandwidth": Panel("Bandwidth of all SMs", "TB/s", log=True),
        },
        marks=_hierarchy,
        says=_slower,
        experiment="latency",
        caption=(
            "The article's table, round values that name no GPU and are meant for any, beside those of this one as "
            "they are. Of the bandwidth of global memory it gives a range."
        ),
    ),
)
