"""GELU by PyTorch's ways on the CPU: as gelu.py has it on the GPU, but by the CPU time of the thread that works.

A sample is the mean of a batch of calls, and the ways take turns. One thread works, and its own CPU time is taken: a
machine that has other work to do interrupts it, and several threads spin while they wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro import experiments, stats


def batches(
    calls: Mapping[str, Callable[[], Any]],
    batch_seconds: float,
    seconds: float,
    least: int,
    clock: Callable[[], float] | None = None,
) -> dict[str, list[float]]:
    """Samples of every call in µs, taken in turn: the mean of as many calls as last `batch_seconds`.

    Args:
        seconds, least: when to stop: so long for each call, and at least so many samples.
        clock: what is read, in seconds; by default the CPU time of this thread.
    """
    clock = clock or time.thread_time

    def run(call: Callable[[], Any], count: int) -> float:
        start = clock()
        for _ in range(count):
            call()
        return (clock() - start) / count

    counts = {
        name: max(1, round(batch_seconds / max(1e-9, min(run(call, 1) for _ in range(3)))))
        for name, call in calls.items()
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while len(next(iter(found.values()))) < least or time.perf_counter() < end:
        for name, call in calls.items():
            found[name].append(run(call, counts[name]) * 1e6)
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
