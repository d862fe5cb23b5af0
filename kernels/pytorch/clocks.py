"""Timing by the host's clock alone, on the CPU: what of it needs no GPU to go wrong.

Two works through PyTorch, by one thread: a product of small matrices, a microsecond, and one of larger ones,
milliseconds. The reference is the CPU time of the thread, which stands still while the machine does something else: the
median of batches of calls that last long enough for the clock not to matter, after a warm-up.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SHORT, LONG = "torch.mm.small", "torch.mm.large"


def work(torch: Any, name: str, parameters: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that multiplies two fp32 matrices of its own."""
    n = parameters["small"] if name == SHORT else parameters["large"]
    a, b = torch.randn(n, n), torch.randn(n, n)
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def clocked(call: Callable[[], Any], count: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """`count` times of one call each, µs."""
    times = []
    for _ in range(count):
        start = clock()
        call()
        times.append((clock() - start) * 1e6)
    return times


def tick(clock: Callable[[], float], count: int = 200_000) -> float:
    """The smallest step by which `clock` was seen to move on, µs."""
    steps, last = [], clock()
    for _ in range(count):
        now = clock()
        if now > last:
            steps.append(now - last)
        last = now
    return min(steps) * 1e6


def fresh(name: str, parameters: Mapping[str, Any], count: int) -> list[float]:
    """The first `count` calls of a process that has done nothing else, µs; asked of a new process."""
    command = [sys.executable, __file__, name, json.dumps(dict(parameters)), str(count)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        from gemmrepro.errors import UserError

        raise UserError(f"a process for first calls failed: {' / '.join(answer.stderr.strip().splitlines()[-3:])}")
    return json.loads(answer.stdout.splitlines()[-1])


def on_cpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each method, of one work."""
    import torch

    from gemmrepro import experiments, stats

    (subject,) = (each for each in context.subjects if each.kernel == point["work"])
    settings, name = context.settings, point["work"]
    batches = experiments.beside("pytorch", "gelu_cpu.py").batches
    first = fresh(name, context.parameters, settings["first"])
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    with torch.inference_mode():
        call = work(torch, name, context.parameters)
        clocked(call, settings["warm_up"])
        often = (settings["batch_seconds"], settings["seconds"], settings["least"])
        found = batches({name: call}, *often)[name]
        batched = batches({name: call}, *often, time.perf_counter)[name]
        single = clocked(call, settings["samples"])
        coarse = clocked(call, 1, time.time)
        torch.set_num_threads(cores)
        clocked(call, settings["warm_up"])
        every = batches({name: call}, *often, time.perf_counter)[name]
        torch.set_num_threads(1)
    level = stats.median_interval(found).value
    mean, least = statistics.fmean(first), min(single)
    rows = {
        "first": (first[:1], stats.median_interval(first[:1])),
        "mean": (first, stats.Interval(mean, mean, mean)),
        "single": (single, stats.median_interval(single)),
        "least": (single, stats.Interval(least, least, least)),
        "coarse": (coarse, stats.median_interval(coarse)),
        "batches": (batched, stats.median_interval(batched)),
        "cores": (every, stats.median_interval(every)),
        "thread": (found, stats.median_interval(found)),
    }
    ticks = {"coarse": tick(time.time), "thread": tick(time.thread_time)}
    fine = tick(time.perf_counter)
    for method, (times, us) in rows.items():
        yield context.row(
            subject,
            method=method,
            median_us=us.value,
            ci_low_us=us.low,
            ci_high_us=us.high,
            samples=len(times),
            ratio=us.value / level,
            ratio_low=us.low / level,
            ratio_high=us.high / level,
            tick_us=ticks.get(method, fine),
            threads=cores if method == "cores" else 1,
        )


def main() -> None:
    """The first calls of the work that the command names, as one line of JSON."""
    import torch

    name, parameters, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    with torch.inference_mode():
        call = work(torch, name, parameters)
        print(json.dumps(clocked(call, count)))


if __name__ == "__main__":
    main()
