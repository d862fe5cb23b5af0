"""GELU by several ways: how long each takes, how many kernels it is, and what those kernels must move.

Of PyTorch's ways `eager` is the formula as it stands, five operations with a result in memory each; `torch.jit.script`
and `torch.compile` may make one kernel of it. Ways are timed by the suite's own method, each beside the eager formula,
sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro import experiments, stats

EAGER, SCRIPT, COMPILE = "torch.eager", "torch.jit.script", "torch.compile"

EAGER_BYTES = 4 * (2 + 2 + 2 + 2 + 3)
"""Bytes an element that five fp32 operations must move: four read one array and write one, the last one reads two."""
FUSED_BYTES = 4 * 2

WARM_CALLS = 6
"""torch.jit.script compiles on its second call, when it has seen what comes in, and PyTorch loads code on demand."""
CHECKED = 1 << 20
"""Elements whose errors are looked at."""
UNIT = 2.0**-24


def way(torch: Any, name: str) -> Callable[[Any], Any]:
    """The function x -> GELU of x by one of the ways, compiled afresh: from a function object that nothing knows."""
    formula = experiments.beside("pytorch", "formula.py").gelu
    if name == EAGER:
        return formula
    return torch.jit.script(formula) if name == SCRIPT else torch.compile(formula, dynamic=False)


def error(torch: Any, x: Any, y: Any) -> float:
    """The largest |y - GELU(x)| / |x| over the first elements, in units of 2^-24, against float64."""
    x, y = x[:CHECKED].double(), y[:CHECKED].double()
    constant = torch.tensor(1.41421, dtype=torch.float32).double().item()
    right = x * 0.5 * (1.0 + torch.erf(x / constant))
    return float(((y - right).abs() / x.abs().clamp_min(1e-30)).max()) / UNIT


def cells(elements: int, way: str, us: stats.Interval, ratio: stats.Interval, samples: int) -> dict[str, Any]:
    """What a row says beside its subject: times, the gain over eager, and the rates that follow."""
    moved = EAGER_BYTES if way == EAGER else FUSED_BYTES
    return {
        "what": "gelu",
        "elements": elements,
        "median_us": us.value,
        "ci_low_us": us.low,
        "ci_high_us": us.high,
        "samples": samples,
        "gain": ratio.value,
        "gain_low": ratio.low,
        "gain_high": ratio.high,
        "moved_bytes": moved * elements,
        "moved_gbps": moved * elements / us.value * 1e-3,
    }


def launches(session: Any, call: Callable[[], Any]) -> int:
    """How many kernels (and copies) one call launches: the nodes of a CUDA graph that it is captured into."""
    from cuda.bindings import driver

    def checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
        if answer[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"a call's launches cannot be counted ({answer[0].name})")
        return answer[1:]

    stream = driver.CUstream(session.stream.ptr)
    checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        call()
    finally:
        (graph,) = checked(driver.cuStreamEndCapture(stream))
    count = int(checked(driver.cuGraphGetNodes(graph, 0))[-1])
    checked(driver.cuGraphDestroy(graph))
    return count


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each way and for our own kernel by each toolkit, at one number of elements."""
    import cupy
    import torch

    from gemmrepro.operands import Operands
    from gemmrepro.registry import Problem, Shape
    from gemmrepro.timing import Plan, Timer, wants_graphs

    session, elements = context.session, point["elements"]
    settings = context.settings
    plan = Plan(0.01, settings["seconds_per_round"], 6, 200)
    timer = Timer(session)
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.ExternalStream(session.stream.ptr)):
        generator = torch.Generator("cuda").manual_seed(elements)
        x = torch.randn(elements, device="cuda", generator=generator)
        out = torch.empty_like(x)
        problem = Problem("gelu")
        operands = Operands(problem, Shape(1, elements, 1), (cupy.asarray(x),), cupy.asarray(out))

        def bound(subject: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
            """(launches it, gives the result of a launch)."""
            if subject.kernel == "pytorch.gelu":
                call = context.bind(subject, operands)
                out.fill_(float("nan"))
                return call, lambda: (call(), out)[1]
            function = way(torch, subject.kernel)
            return lambda: function(x), lambda: function(x)

        eager = way(torch, EAGER)
        beside = lambda: eager(x)  # noqa: E731
        for _ in range(WARM_CALLS):
            beside()
        session.sync()
        eager_us = timer.estimate(beside, timer.once(beside))
        for subject in context.subjects:
            call, result = bound(subject)
            for _ in range(WARM_CALLS):
                result()
            session.sync()
            count, wrong = launches(session, call), error(torch, x, result())
            estimate = timer.estimate(call, timer.once(call))
            graphs = wants_graphs(estimate, eager_us)
            bursts = [
                timer.burst([call], [beside], "warm", plan, (estimate, eager_us), graphs)
                for _ in range(settings["rounds"])
            ]
            times, under = [burst.times for burst in bursts], [burst.baseline for burst in bursts]
            us = stats.rounds_interval(times, repeatability=stats.REPEATABILITY)
            ratio = stats.ratio_interval(under, times)
            found = cells(elements, subject.kernel, us, ratio, sum(map(len, times)))
            yield context.row(subject, **found, launches=count, error_u=wrong, mode=bursts[0].mode)
        torch._dynamo.reset()
