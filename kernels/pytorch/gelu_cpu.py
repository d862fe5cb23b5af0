"""GELU by PyTorch's ways on the CPU: as gelu.py has it on the GPU, but by the host's clock.

A sample is the mean of a batch of calls, and the ways take turns. One thread works: several spin while they wait for
each other, and whatever else the machine has to do would be timed with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro import experiments, stats


def batches(
    calls: Mapping[str, Callable[[], Any]], batch_seconds: float, seconds: float, least: int
) -> dict[str, list[float]]:
    """Samples of every call in µs, taken in turn: the mean of as many calls as last `batch_seconds`."""
    counts = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        counts[name] = max(1, round(batch_seconds / max(1e-9, time.perf_counter() - start)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while len(next(iter(found.values()))) < least or time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            found[name].append((time.perf_counter() - start) / counts[name] * 1e6)
    return found


def on_cpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each way, at one number of elements."""
    import torch

    shared = experiments.beside("pytorch", "gelu.py")
    elements, settings = point["elements"], context.settings
    torch.set_num_threads(1)
    with torch.inference_mode():
        x = torch.randn(elements, generator=torch.Generator().manual_seed(elements))
        functions = {subject.kernel: shared.way(torch, subject.kernel) for subject in context.subjects}
        calls = {name: (lambda function=function: function(x)) for name, function in functions.items()}
        beside = "the eager formula, once more"  # so that a gain of 1 is measured, too
        calls[beside] = calls[shared.EAGER]
        for call in calls.values():
            for _ in range(shared.WARM_CALLS):
                call()
        found = batches(calls, settings["batch_seconds"], settings["seconds"], settings["least"])
        for subject in context.subjects:
            times = found[subject.kernel]
            us = stats.median_interval(times)
            ratio = stats.ratio_interval([found[beside]], [times])
            row = shared.cells(elements, subject.kernel, us, ratio, len(times))
            wrong = shared.error(torch, x, functions[subject.kernel](x))
            yield context.row(subject, **row, threads=torch.get_num_threads(), error_u=wrong)
        torch._dynamo.reset()
