"""The same work timed by several methods, each of which somebody uses.

Three works: a large GEMM, whose time is the GPU's alone; an addition that takes a microsecond, less than it takes to
launch it; and a forward pass of ResNet50, two hundred small kernels. What each method says is held against the suite's
own (gemmrepro.timing: warm, sampled until the interval is narrow, graphs where launches are short).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

GEMM, SMALL, NETWORK = "torch.mm", "torch.add", "torchvision.resnet50"
WORKS = (GEMM, SMALL, NETWORK)

SUITE = "suite"
METHODS = {
    "first": "host clock, first call of the process",
    "unsynchronised": "host clock, no synchronisation",
    "synchronised": "host clock, synchronised",
    "many": "host clock, synchronised once for many calls",
    "events": "events, one call at a time",
    "queued": "events, calls queued up",
    "rested": "events, one call after a second's rest",
    "graph": "a CUDA graph of many calls",
    SUITE: "the suite, warm",
    "cold": "the suite, cold L2",
    "zeros": "the suite, warm, all zeros",
    "cpu": "the CPU instead, on every core",
    "blocks": "twice the same, one block after the other",
    "turns": "twice the same, in turn",
}
"""Methods by name. The last two compare a work with itself: their ratio, which should be 1, is that of the halves."""


def work(torch: Any, name: str, parameters: Mapping[str, Any], zeros: bool = False) -> Callable[[], Any]:
    """A function that does the work once, asynchronously on PyTorch's current stream, on data of its own."""

    def data(*shape: int, dtype: Any = torch.float32) -> Any:
        return (
            torch.zeros(shape, dtype=dtype, device="cuda")
            if zeros
            else torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
        )

    if name == GEMM:
        n = parameters["gemm"]
        a, b = data(n, n, dtype=torch.bfloat16), data(n, n, dtype=torch.bfloat16)
        c = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=c)
    if name == SMALL:
        x, y = data(parameters["elements"]), data(parameters["elements"])
        z = torch.empty_like(x)
        return lambda: torch.add(x, y, out=z)
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda().eval()
    images = data(parameters["batch"], 3, 224, 224)
    return lambda: model(images)


def on_the_cpu(torch: Any, parameters: Mapping[str, Any], count: int) -> list[float]:
    """`count` forward passes of ResNet50 on the CPU, µs, after one that does not count."""
    import torchvision

    model = torchvision.models.resnet50(weights=None).eval()
    images = torch.randn(parameters["batch"], 3, 224, 224)
    model(images)
    return clocked(lambda: model(images), lambda: None, count, wait=False)


# By the host's clock and by events ----------------------------------------------------------------------------------


def clocked(call: Callable[[], Any], sync: Callable[[], None], count: int, wait: bool) -> list[float]:
    """`count` times of one call each by the host's clock, µs; the GPU is idle before each, `wait`: and after."""
    times = []
    for _ in range(count):
        sync()
        start = time.perf_counter()
        call()
        if wait:
            sync()
        times.append((time.perf_counter() - start) * 1e6)
    sync()
    return times


def clocked_together(call: Callable[[], Any], sync: Callable[[], None], count: int, calls: int) -> list[float]:
    """`count` means of `calls` calls each, the GPU waited for once at the end of each."""
    times = []
    for _ in range(count):
        sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        sync()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return times


def by_events(torch: Any, call: Callable[[], Any], count: int, queued: bool) -> list[float]:
    """`count` times of one call each by a pair of events, µs; `queued`: without waiting in between."""
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    torch.cuda.synchronize()
    for first, last in pairs:
        first.record()
        call()
        last.record()
        if not queued:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return [1e3 * first.elapsed_time(last) for first, last in pairs]


def by_graph(torch: Any, timer: Any, call: Callable[[], Any], count: int, calls: int) -> list[float]:
    """`count` times of a CUDA graph of `calls` calls, a call's share in µs."""
    graph = timer.capture([call] * calls)
    stream = timer.session.stream
    return [each / calls for each in by_events(torch, lambda: graph.launch(stream), count, queued=True)]


class Fresh:
    """A process that has done nothing but load PyTorch, until it is asked for its first calls of one work."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        command = [sys.executable, __file__, name, json.dumps(dict(parameters))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def first_calls(self) -> list[float]:
        """The first calls in µs, synchronised. Ends the process."""
        said, _ = self._process.communicate("now\n")
        if self._process.returncode:
            from gemmrepro.errors import UserError

            raise UserError("the process for the first calls failed; see above.")
        return json.loads(said.splitlines()[-1])


# The experiment -----------------------------------------------------------------------------------------------------


def heat(call: Callable[[], Any], sync: Callable[[], None], seconds: float) -> None:
    """Keep the GPU busy for so long: what draws a lot of power runs faster until the clock gives way."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(5):
            call()
        sync()


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each method, of one work. Methods take turns, in rounds: each meets the GPU as the others do."""
    import torch

    from gemmrepro import stats
    from gemmrepro.timing import Plan, Timer, rotation_sets, summarize_sensors, wants_graphs

    (subject,) = (each for each in context.subjects if each.kernel == point["work"])
    session, settings, name = context.session, context.settings, point["work"]
    count, plan = settings["samples"], Plan(0.01, settings["seconds"], 6, 200)
    sync = torch.cuda.synchronize
    timer = Timer(session)
    times: dict[str, list[Sequence[float]]] = {method: [] for method in METHODS}
    sensed: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    fresh = Fresh(name, context.parameters)
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.ExternalStream(session.stream.ptr)):
        call = work(torch, name, context.parameters)
        silent = work(torch, name, context.parameters, zeros=True)
        for _ in range(settings["warm_up"]):
            call()
            silent()
        sync()
        estimate = timer.estimate(call, timer.once(call))
        graphs = wants_graphs(estimate, None)
        copies = [call]
        if graphs:
            # Other data at every launch, as the suite does where a flush would be inside of what is timed.
            sets = rotation_sets(3 * 4 * context.parameters["elements"], session.gpu.l2_bytes)
            copies += [work(torch, name, context.parameters) for _ in range(sets - 1)]
        together, in_graph = (max(1, min(200, round(span / estimate))) for span in (20e3, 2e3))

        def suite(method: str, calls: Sequence[Callable[[], Any]], cache: str) -> Sequence[float]:
            burst = timer.burst(calls, None, cache, plan, (estimate, None), graphs)
            sensed[method] += burst.sensors
            return burst.times

        for _ in range(settings["rounds"]):
            heat(call, sync, settings["heat_seconds"])
            times[SUITE].append(suite(SUITE, [call], "warm"))
            times["unsynchronised"].append(clocked(call, sync, count, wait=False))
            times["synchronised"].append(clocked(call, sync, count, wait=True))
            times["many"].append(clocked_together(call, sync, 3, together))
            times["events"].append(by_events(torch, call, count, queued=False))
            times["queued"].append(by_events(torch, call, count, queued=True))
            times["graph"].append(by_graph(torch, timer, call, 7, in_graph))
            times["cold"].append(suite("cold", copies, "cold"))
            heat(silent, sync, settings["heat_seconds"])
            times["zeros"].append(suite("zeros", [silent], "warm"))
        half = max(6, min(200, round(settings["block_seconds"] * 1e6 / estimate)))
        time.sleep(settings["rest_seconds"])
        times["rested"].append(by_events(torch, call, 1, queued=False))
        time.sleep(settings["rest_seconds"])
        one, other = (by_events(torch, call, half, queued=True) for _ in range(2))
        heat(call, sync, settings["heat_seconds"])
        both = by_events(torch, call, 2 * half, queued=True)
        if name == NETWORK:
            times["cpu"].append(on_the_cpu(torch, context.parameters, settings["cpu_calls"]))
    times["first"].append(fresh.first_calls()[:1])
    levels = [stats.median_interval(each).value for each in times[SUITE]]

    def row(method: str, rounds: Sequence[Sequence[float]], ratio: stats.Interval) -> dict[str, Any]:
        us = stats.rounds_interval(rounds)
        readings = summarize_sensors(sensed[method])
        return context.row(
            subject,
            method=method,
            median_us=us.value,
            ci_low_us=us.low,
            ci_high_us=us.high,
            samples=sum(map(len, rounds)),
            ratio=ratio.value,
            ratio_low=ratio.low,
            ratio_high=ratio.high,
            mean_us=statistics.fmean(value for each in rounds for value in each),
            clock_mhz=readings["clock_mhz"],
            power_w=readings["power_w"],
        )

    for method, rounds in times.items():
        if len(rounds) == len(levels):
            # Against what the suite said in the same round, so that a drift between rounds cancels.
            pairs = [[value / level for value in each] for each, level in zip(rounds, levels, strict=True)]
            yield row(method, rounds, stats.rounds_interval(pairs))
        elif rounds:
            (found,) = rounds
            yield row(method, rounds, stats.rounds_interval([[value / statistics.median(levels) for value in found]]))
    # Halves that were not taken side by side have a median each.
    top, bottom = stats.median_interval(one), stats.median_interval(other)
    yield row("blocks", [one], stats.Interval(top.value / bottom.value, top.low / bottom.high, top.high / bottom.low))
    yield row("turns", [both[::2]], stats.ratio_interval([both[::2]], [both[1::2]]))


def main() -> None:
    """The first calls of the work that the command names, as one line of JSON, once a line comes in."""
    import torch

    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    if name == NETWORK:
        import torchvision  # noqa: F401

    sys.stdin.readline()
    with torch.inference_mode():
        call = work(torch, name, parameters)
        torch.cuda.synchronize()
        print(json.dumps(clocked(call, torch.cuda.synchronize, 3, wait=True)))


if __name__ == "__main__":
    main()
