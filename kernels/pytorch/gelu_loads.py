"""The fused GELU with one, two and four loads of 16 bytes a thread, each beside torch.compile's kernel in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro import experiments, registry, stats


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each of our kernels, and for torch.compile beside itself, at one number of elements."""
    import cupy
    import torch

    from gemmrepro.operands import Operands
    from gemmrepro.registry import Problem, Shape
    from gemmrepro.timing import Plan, Timer, wants_graphs

    shared = experiments.beside("pytorch", "gelu.py")
    session, settings, elements = context.session, context.settings, point["elements"]
    plan = Plan(0.01, settings["seconds_per_round"], 6, 200)
    timer = Timer(session)
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.ExternalStream(session.stream.ptr)):
        x = torch.randn(elements, device="cuda", generator=torch.Generator("cuda").manual_seed(elements))
        out = torch.empty_like(x)
        operands = Operands(Problem("gelu"), Shape(1, elements, 1), (cupy.asarray(x),), cupy.asarray(out))
        compiled = shared.way(torch, shared.COMPILE)
        beside = lambda: compiled(x)  # noqa: E731
        for _ in range(shared.WARM_CALLS):
            beside()
        session.sync()
        beside_us = timer.estimate(beside, timer.once(beside))
        for subject in context.subjects:
            own = subject.kernel != shared.COMPILE
            call = context.bind(subject, operands) if own else beside
            out.fill_(float("nan"))
            for _ in range(shared.WARM_CALLS):
                call()
            session.sync()
            wrong = shared.error(torch, x, out if own else beside())
            estimate = timer.estimate(call, timer.once(call))
            graphs = wants_graphs(estimate, beside_us)
            bursts = [
                timer.burst([call], [beside], "warm", plan, (estimate, beside_us), graphs)
                for _ in range(settings["rounds"])
            ]
            times, under = [burst.times for burst in bursts], [burst.baseline for burst in bursts]
            us = stats.rounds_interval(times, repeatability=stats.REPEATABILITY)
            ratio = stats.ratio_interval(under, times)
            yield context.row(
                subject,
                elements=elements,
                loads=registry.kernel(subject.kernel).params["unroll"] if own else None,
                median_us=us.value,
                ci_low_us=us.low,
                ci_high_us=us.high,
                samples=sum(map(len, times)),
                of_compile=ratio.value,
                of_compile_low=ratio.low,
                of_compile_high=ratio.high,
                moved_gbps=shared.FUSED_BYTES * elements / us.value * 1e-3,
                error_u=wrong,
            )
        torch._dynamo.reset()
