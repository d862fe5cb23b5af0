"""The notes' tables as figures: ways to time, GELU scripted, a training step compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemmrepro.experiments import Mark, Measured, Numbers, Panel, Table, mark, quotient

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
    """Which modes slow the step down here and not in print."""
    least = pairs.groupby("x", sort=False).agg({"published": "min", "measured": "first"})
    slow = least.index[(least["measured"] < 1) & (least["published"] >= 1)]
    return (
        f"torch.compile slows the training step down here in mode {', '.join(slow)}, and not in print"
        if len(slow)
        else ""
    )


TABLES = (
    Table(
        name="ways_to_time",
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
        title="A training step of ResNet18 by mode of torch.compile",
        panels={"gain": Panel("Batch 64", "speed relative to eager on the same GPU", line=1, low=0.9)},
        marks=_training,
        says=_modes,
        experiment="training",
        caption="The article's two tables of torch.compile: the gain of each mode over eager PyTorch on the same GPU.",
    ),
)
