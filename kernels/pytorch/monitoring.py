"""A training step that is watched all the time: what timing every step costs by synchronising and by CUDA events.

ResNet18 as in training.py, eagerly. Ways take turns, round after round; what counts is the time of all the steps of a
turn by the host's clock, the GPU waited for before and after, so that a way pays for what it does between the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PLAIN = "plain"
WAYS = {
    PLAIN: "not timed",
    "synchronised": "synchronised before and after each step",
    "events": "two events around each step",
}


def steps(torch: Any, step: Callable[[], Any], way: str, count: int) -> float:
    """The mean time of a step, ms, with every one of `count` timed in that way."""
    sync = torch.cuda.synchronize
    seen: list[Any] = []
    sync()
    start = time.perf_counter()
    for _ in range(count):
        if way == "synchronised":
            sync()
            before = time.perf_counter()
            step()
            sync()
            seen.append(time.perf_counter() - before)
        elif way == "events":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            step()
            last.record()
            seen.append((first, last))
        else:
            step()
    sync()
    return (time.perf_counter() - start) / count * 1e3


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each way."""
    import torch
    import torchvision

    from gemmrepro import stats

    (subject,) = context.subjects
    settings, batch = context.settings, point["batch"]
    with torch.cuda.stream(torch.cuda.ExternalStream(context.session.stream.ptr)):
        torch.manual_seed(1)
        model = torchvision.models.resnet18(weights=None).cuda().train()
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            model(images).sum().backward()
            optimizer.step()

        for _ in range(settings["warm_up"]):
            step()
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(settings["rounds"]):
            for way, found in times.items():
                found.append(steps(torch, step, way, settings["steps"]))
    for way, found in times.items():
        ms = stats.median_interval(found)
        # Within its round, so that a drift of the clock cancels.
        cost = stats.median_interval([one / plain for one, plain in zip(found, times[PLAIN], strict=True)])
        yield context.row(
            subject,
            way=way,
            batch=batch,
            step_ms=ms.value,
            ci_low_ms=ms.low,
            ci_high_ms=ms.high,
            cost=cost.value,
            cost_low=cost.low,
            cost_high=cost.high,
        )
