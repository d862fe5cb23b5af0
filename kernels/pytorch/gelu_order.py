"""torch.jit.script's cache of functions: what was scripted and called before, and whether it is cleared.

The article times the formula on the CPU and then, in the same process, on the GPU. torch.jit.script keeps what it made
of a function object and hands it back, with what its first calls specialized it for. Each round of an order begins
with a function that nothing knows and ends with timed calls on the GPU, beside the eager formula.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Round:
    """What one function took.

    Attributes:
        first: its first calls, µs by the host's clock.
        profiled: whether each of them profiled its inputs, 1 or 0.
        later, beside: later calls and, right after them, as many of the eager formula, µs by events.
    """

    first: Sequence[float]
    profiled: Sequence[int]
    later: Sequence[float]
    beside: Sequence[float]

    @property
    def of_median(self) -> list[float]:
        """The first calls relative to the median of later ones."""
        return [each / statistics.median(self.later) for each in self.first]


def cells(rounds: Sequence[Round]) -> dict[str, Any]:
    """The numbers of a row: medians over the rounds' functions, with their intervals."""
    from gemmrepro import stats

    us = stats.rounds_interval([each.later for each in rounds])
    gain = stats.ratio_interval([each.beside for each in rounds], [each.later for each in rounds])
    slow = sorted(sum(each >= 10 for each in one.of_median) for one in rounds)
    low, high, _ = stats.median_ranks(len(slow))
    return {
        **_within("first", [each.first[0] for each in rounds], "_us"),
        **_within("second", [each.first[1] for each in rounds], "_us"),
        **_within("third", [each.first[2] for each in rounds], "_us"),
        **_within("first_of_median", [each.of_median[0] for each in rounds]),
        **_within("second_of_median", [each.of_median[1] for each in rounds]),
        "slow_calls": statistics.median_low(slow),
        "slow_calls_low": slow[low],
        "slow_calls_high": slow[high],
        "median_us": us.value,
        "ci_low_us": us.low,
        "ci_high_us": us.high,
        "gain": gain.value,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "profiled_first": min(each.profiled[0] for each in rounds),
        "profiled_later": max(each.profiled[-1] for each in rounds),
    }


def _within(name: str, values: Sequence[float], unit: str = "") -> dict[str, float]:
    """The median of `values` and the ends of its interval."""
    from gemmrepro import stats

    level = stats.median_interval(values)
    return {f"{name}{unit}": level.value, f"{name}_low{unit}": level.low, f"{name}_high{unit}": level.high}


def measured(torch: Any, order: str, x: Any, eager: Callable[[Any], Any], count: int) -> Round:
    """One round of an order, with `count` samples of later calls."""
    function = scripted(torch, order)
    first, profiled = first_calls(torch, lambda: function(x))
    later = timed(torch, lambda: function(x), count)
    beside = timed(torch, lambda: eager(x), count)
    clear(torch)
    return Round(first, profiled, later, beside)


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The row of one order."""
    import torch

    (subject,) = context.subjects
    eager = experiments.beside("pytorch", "formula.py").gelu
    with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(context.session.stream.ptr)):
        x = torch.randn(SHAPE, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
        for _ in range(CALLS):
            eager(x)
        rounds = [
            measured(torch, point["order"], x, eager, context.settings["samples"])
            for _ in range(context.settings["rounds"])
        ]
    yield context.row(subject, order=point["order"], elements=x.numel(), rounds=len(rounds), **cells(rounds))
