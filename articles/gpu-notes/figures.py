"""The notes' tables as figures: histograms, ways to time, GELU scripted, a training step compiled.

Their two charts of copies are the figures of the experiment `copy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemmrepro.experiments import Mark, Measured, Numbers, Panel, Table, listed, mark, quotient

FEW, MANY = "histogram: 256M elements, 256 bins", "histogram: 256M elements, 5M bins"
VERSIONS = {
    "1, global atomics": ("global atomics", "memory.histogram_global"),
    "2, shared-memory atomics": ("shared-memory atomics", "memory.histogram_shared"),
    "3, shared memory and reduction": ("shared memory + reduction", "memory.histogram_merged"),
}
MANY_BINS = (5 << 20, 5_000_000)
"""What "5M" is: the linked program's number, then that of older recordings."""

ARTICLE = {
    "timing": "timing: ResNet50 inference, batch 128",
    "gelu": "pointwise fusion: GELU",
    "training": "torch.compile: ResNet18 training, batch 64, 500 iterations",
}
SYNCHRONISED = "GPU, torch.cuda.synchronize, notebook"
WAYS = {
    "the CPU instead": ("CPU", "cpu"),
    "not synchronised": ("GPU, no synchronisation (wrong), notebook", "unsynchronised"),
    "synchronize before and after": (SYNCHRONISED, "synchronised"),
    "two events": ("GPU, torch.cuda.Event, notebook", "events"),
}
ELEMENTS = (19_267_584, 1 << 28, 1 << 24)
"""Of GELU: the notebook's, then those of older recordings."""

MODES = ("eager", "default", "reduce-overhead", "max-autotune")


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


def _timing(numbers: Numbers) -> Iterator[Mark]:
    right = numbers.printed(SYNCHRONISED, "time", table=ARTICLE["timing"])
    right_here = numbers.found("timing", "torchvision.resnet50", "median_us", method="synchronised")
    for words, (system, method) in WAYS.items():
        there = quotient(numbers.printed(system, "time", table=ARTICLE["timing"]), right)
        here = numbers.found("timing", "torchvision.resnet50", "median_us", method=method)
        yield mark("time", "ResNet50", words, there, quotient(here, right_here))


def _gain(numbers: Numbers, experiment: str) -> Measured | None:
    """Of torch.jit.script over eager at the first of ELEMENTS that was measured."""
    found = (numbers.found(experiment, "torch.jit.script", "gain", what="gelu", elements=n) for n in ELEMENTS)
    return next((gain for gain in found if gain), None)


def _gelu(numbers: Numbers) -> Iterator[Mark]:
    for device, experiment in (("CPU", "gelu_cpu"), ("GPU", "gelu")):
        there = numbers.printed(f"{device} torch.jit.script", "speedup", table=ARTICLE["gelu"])
        yield mark("gain", "torch.jit.script", device, there, _gain(numbers, experiment))


def _training(numbers: Numbers) -> Iterator[Mark]:
    eager = numbers.found("training", "torch.eager", "step_ms", part="steady")
    for mode in MODES[1:]:
        there = (numbers.printed(mode, "speedup", table=ARTICLE["training"], hardware=chip) for chip in ("T4", "V100"))
        here = quotient(eager, numbers.found("training", f"torch.compile.{mode}", "step_ms", part="steady"))
        yield Mark("gain", "ResNet18", mode, tuple(gain for gain in there if gain), here)


def _stops_early(pairs: Any) -> str:
    """Whether a clock that does not wait for the GPU stops too early."""
    early = pairs[pairs["x"] == "not synchronised"].iloc[0][["published", "measured"]]
    return "Without synchronising the clock stops early, in print and here; events do not" if early.max() < 0.9 else ""


def _scripted(pairs: Any) -> str:
    """What torch.jit.script gains on the GPU beside what it gains in print."""
    cpu, gpu = (pairs[pairs["x"] == device].iloc[0] for device in ("CPU", "GPU"))
    if not (cpu["measured"] > cpu["published"] and gpu["measured"] < gpu["published"]):
        return ""
    return "torch.jit.script gains less than in print on the GPU, and more on the CPU"


def _modes(pairs: Any) -> str:
    """Which modes gain more here than on any GPU in print, by more than the times scatter."""
    most = pairs.groupby("x", sort=False).agg({"published": "max", "measured": "first"})
    more = list(most.index[most["measured"] > 1.2 * most["published"]])
    return f"{listed(more)} gain more here than on either GPU in print" if len(more) > 1 else ""


def _window(pairs: Any) -> str:
    """Whether the versions keep their gains, and the window its own."""
    speed, window = (pairs[pairs["panel"] == panel].iloc[-1] for panel in ("speed", "window"))
    if speed["measured"] < speed["published"] or not window["published"] > 1.05 > window["measured"]:
        return ""
    gains = f"Shared memory and a reduction gain {speed['measured']:.0f} times, {speed['published']:.0f} in print"
    return f"{gains}; keeping counts in L2 gains nothing here"


TABLES = (
    Table(
        name="histogram_versions",
        family="memory",
        title="Histograms of 2²⁸ ids by version",
        panels={
            "speed": Panel("256 bins", "speed relative to version 1 on the same GPU", log=True, line=1.0),
            "window": Panel("The counts kept in L2", "speed relative to the same version without", line=1.0, low=0.9),
        },
        marks=_histogram,
        says=_window,
        experiment="histogram",
        caption=(
            "The article's two tables of histograms, uniform ids. Speeds are over version 1 of the same GPU, above, "
            "and over the same version without an L2 persisting window, below."
        ),
    ),
    Table(
        name="ways_to_time",
        family="pytorch",
        title="ResNet50 timed in three ways",
        panels={
            "time": Panel("Inference, batch 128", "time reported, relative to the synchronised clock", log=True, line=1)
        },
        marks=_timing,
        says=_stops_early,
        experiment="timing",
        caption=(
            "The article's table of timing methods, with the digits of the linked notebook: what each reports for "
            "the same work, over the host's synchronised clock with the same GPU."
        ),
    ),
    Table(
        name="gelu_scripted",
        family="pytorch",
        title="GELU by torch.jit.script",
        panels={"gain": Panel("Five operations as one kernel", "speed relative to eager on the same device", line=1)},
        marks=_gelu,
        says=_scripted,
        experiment="gelu",
        caption=(
            "The article's two tables of the pointwise formula: the gain of torch.jit.script over eager PyTorch, "
            "each on its own device."
        ),
    ),
    Table(
        name="compiled_training",
        family="pytorch",
        title="A training step of ResNet18 by mode of torch.compile",
        panels={"gain": Panel("Batch 64", "speed relative to eager on the same GPU", line=1, low=0.9)},
        marks=_training,
        says=_modes,
        experiment="training",
        caption="The article's two tables of torch.compile: the gain of each mode over eager PyTorch on the same GPU.",
    ),
)
