"""torch.jit.script's cache of functions: what was scripted and called before, and whether it is cleared.

The article times the formula on the CPU and then, in the same process, on the GPU. torch.jit.script keeps what it made
of a function object and hands it back, with what its first calls specialized it for. Each order below begins with a
function that nothing knows and ends with timed calls on the GPU, beside the eager formula.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro import experiments

SHAPE = (128, 3, 224, 224)
"""The article's, of 19,267,584 numbers."""
SMALL = (64, 1000)
CALLS = 5
"""Calls before another device or shape, more than the executor profiles."""
ORDERS = {
    "gpu": "the GPU at once",
    "cpu": "the CPU before, nothing cleared",
    "cpu, cleared": "the CPU before, caches cleared",
    "cpu, new object": "the CPU before, then the same text as another function",
    "shape": "another shape on the GPU before, nothing cleared",
}


def clear(torch: Any) -> None:
    """What the article clears."""
    torch.jit._state._jit_function_overload_caching.clear()
    torch.jit._state._jit_caching_layer.clear()


def scripted(torch: Any, order: str) -> Callable[[Any], Any]:
    """The scripted formula as `order` leaves it, ready for its first call at the article's shape on the GPU."""
    formula = experiments.beside("pytorch", "formula.py").gelu
    before = {"gpu": None, "shape": torch.randn(SMALL, device="cuda")}.get(order, torch.randn(SMALL))
    if before is not None:
        function = torch.jit.script(formula)
        for _ in range(CALLS):
            function(before)
    if order == "cpu, cleared":
        clear(torch)
    elif order == "cpu, new object":
        formula = experiments.beside("pytorch", "formula.py").gelu
    return torch.jit.script(formula)


def has_profile(torch: Any) -> int:
    """Whether the graph that was run last is one that profiles its inputs: 1 or 0."""
    return int("prim::profile" in str(torch.jit.last_executed_optimized_graph()))


def timed(torch: Any, call: Callable[[], Any], count: int) -> list[float]:
    """`count` times of one call each by events, µs, calls queued up."""
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for first, last in pairs:
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    return [1e3 * first.elapsed_time(last) for first, last in pairs]


def first_calls(torch: Any, call: Callable[[], Any]) -> tuple[list[float], list[int]]:
    """The first calls one by one, µs by the host's clock and synchronised, and whether each profiled its inputs."""
    took, profiled = [], []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) * 1e6)
        profiled.append(has_profile(torch))
    return took, profiled


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The row of one order."""
    import torch

    from gemmrepro import stats

    (subject,) = context.subjects
    order, count = point["order"], context.settings["samples"]
    eager = experiments.beside("pytorch", "formula.py").gelu
    with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(context.session.stream.ptr)):
        x = torch.randn(SHAPE, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
        for _ in range(CALLS):
            eager(x)
        function = scripted(torch, order)
        took, profiled = first_calls(torch, lambda: function(x))
        times: list[list[float]] = []
        beside: list[list[float]] = []
        for _ in range(context.settings["rounds"]):
            times.append(timed(torch, lambda: function(x), count))
            beside.append(timed(torch, lambda: eager(x), count))
        us, gain = stats.rounds_interval(times), stats.ratio_interval(beside, times)
    clear(torch)
    yield context.row(
        subject,
        order=order,
        elements=x.numel(),
        first_us=took[0],
        second_us=took[1],
        third_us=took[2],
        first_of_median=took[0] / us.value,
        slow_calls=sum(one >= 10 * us.value for one in took),
        median_us=us.value,
        ci_low_us=us.low,
        ci_high_us=us.high,
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        profiled_first=profiled[0],
        profiled_later=profiled[-1],
    )
