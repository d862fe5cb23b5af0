"""The notes' tables of histograms as a figure. Their two charts of copies are the figures of the experiment `copy`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemmrepro.experiments import Mark, Measured, Numbers, Panel, Table, mark, quotient

FEW, MANY = "histogram: 256M elements, 256 bins", "histogram: 256M elements, 5M bins"
VERSIONS = {
    "1, global atomics": ("global atomics", "memory.histogram_global"),
    "2, shared-memory atomics": ("shared-memory atomics", "memory.histogram_shared"),
    "3, shared memory and reduction": ("shared memory + reduction", "memory.histogram_merged"),
}
MANY_BINS = (5 << 20, 5_000_000)
"""What "5M" is: the linked program's number, then that of older recordings."""


def _time(numbers: Numbers, kernel: str, bins: int, window: str) -> Measured | None:
    return numbers.found("histogram", kernel, "time_us", bins=bins, law="uniform", window=window)


def _histogram(numbers: Numbers) -> Iterator[Mark]:
    first_there = numbers.printed("global atomics", "time", table=FEW)
    first_here = _time(numbers, "memory.histogram_global", 256, "off")
    for words, (system, kernel) in VERSIONS.items():
        there = quotient(first_there, numbers.printed(system, "time", table=FEW))
        yield mark("speed", "histogram", words, there, quotient(first_here, _time(numbers, kernel, 256, "off")))
    for words, (system, kernel) in VERSIONS.items():
        off, on = (numbers.printed(name, "time", table=FEW) for name in (system, f"{system}, L2 persistence"))
        here = quotient(_time(numbers, kernel, 256, "off"), _time(numbers, kernel, 256, "on"))
        yield mark("window", "histogram", f"{words.partition(',')[0]}, 256 bins", quotient(off, on), here)
    off, on = (
        numbers.printed(name, "time", table=MANY) for name in ("global atomics", "global atomics, L2 persistence")
    )
    gains = (
        quotient(*(_time(numbers, "memory.histogram_global", bins, window) for window in ("off", "on")))
        for bins in MANY_BINS
    )
    yield mark("window", "histogram", "1, 5M bins", quotient(off, on), next((gain for gain in gains if gain), None))


def _says(pairs: Any) -> str:
    """Whether the versions keep their gains, and the window its own."""
    speed, window = (pairs[pairs["panel"] == panel].iloc[-1] for panel in ("speed", "window"))
    if speed["measured"] < speed["published"] or not window["published"] > 1.05 > window["measured"]:
        return ""
    return "Shared memory gains what the notes print and more; keeping counts in L2 gains nothing here"


TABLES = (
    Table(
        name="histogram_versions",
        title="Histograms of 2²⁸ ids by version",
        panels={
            "speed": Panel("256 bins", "speed relative to version 1 on the same GPU", log=True, line=1.0),
            "window": Panel("The counts kept in L2", "speed relative to the same version without", line=1.0, low=0.9),
        },
        marks=_histogram,
        says=_says,
        experiment="histogram",
        caption=(
            "The article's two tables of histograms, uniform ids. Speeds are over version 1 of the same GPU, above, "
            "and over the same version without an L2 persisting window, below."
        ),
    ),
)
