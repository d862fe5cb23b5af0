"""A training step of ResNet18, eager or compiled, each mode in a process of its own.

Every process builds the same model from the same seed and trains it as the article does: SGD on the sum of the outputs,
which is no loss that anyone minimizes, but costs what a step costs. It takes its warm-up, forward and backward timed
apart and synchronised, and says so; then the modes are timed in turn, some steps each and round after round, so that a
drift of the clock touches them all alike. Nothing is downloaded: weights and images are random. PyTorch's caches of
compiled code are folders of the process alone, so that the first step costs what it costs on a machine that has never
seen the model.

    python kernels/pytorch/training.py --mode default --batch 64 --warm-up 10

is such a process: it writes one line of JSON once it is warm, and one for each number of steps that it reads.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

EAGER = "eager"
MODES = (EAGER, "default", "reduce-overhead", "max-autotune")
SUBJECTS = {("torch.eager" if mode == EAGER else f"torch.compile.{mode}"): mode for mode in MODES}
LEARNING_RATE = 0.01

_ANSWERS = os.dup(1) if __name__ == "__main__" else 1


# One mode, in its own process ---------------------------------------------------------------------------------------


def serve(mode: str, batch: int, warm_up: int) -> None:
    """Warm up, say what that took, and take as many steps as each line of the input asks for."""
    import torch
    import torchvision

    torch.manual_seed(1)
    model = torchvision.models.resnet18(weights=None).cuda().train()
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    forward = model if mode == EAGER else torch.compile(model, mode=None if mode == "default" else mode)

    def step() -> Any:
        optimizer.zero_grad()
        loss = forward(images).sum()
        loss.backward()
        optimizer.step()
        return loss

    parts, losses = first_steps(torch, forward, images, optimizer, warm_up)
    torch.cuda.reset_peak_memory_stats()
    found = {"parts": parts, "first_loss": finite(losses[0]), "last_loss": finite(losses[-1])}
    counted = compiled(torch) if mode != EAGER else {"graphs": None, "graph_breaks": None, "recompiles": None}
    tell({**found, **counted, "launches": launches(torch, step)})
    for line in sys.stdin:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(int(line) + 1)]
        for _ in range(3):
            step()  # the clock may have fallen while the others had their turn
        torch.cuda.synchronize()
        start = time.perf_counter()
        events[0].record()
        for event in events[1:]:
            step()
            event.record()
        torch.cuda.synchronize()
        total_s = time.perf_counter() - start
        times = [one.elapsed_time(other) for one, other in itertools.pairwise(events)]
        tell({"times_ms": times, "total_s": total_s, "peak_bytes": torch.cuda.max_memory_allocated()})


def first_steps(torch: Any, forward: Any, images: Any, optimizer: Any, count: int) -> tuple[list[Any], list[float]]:
    """The parts of `count` steps in seconds by the host's clock, and the sums of their outputs.

    The parts are forward and backward, each synchronised, backward once more until its call returns, as the article's
    listing reads it, and the whole step.
    """

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    parts, losses = [], []
    for _ in range(count):
        start = now()
        optimizer.zero_grad()
        before = now()
        out = forward(images)
        between = now()
        loss = out.sum()
        loss.backward()
        returned = time.perf_counter()
        after = now()
        optimizer.step()
        parts.append(
            {
                "forward": between - before,
                "backward": after - between,
                "backward, not synchronised": returned - between,
                "step": now() - start,
            }
        )
        losses.append(float(loss))
    return parts, losses


def finite(value: float) -> float | None:
    """`value`, or None where it is none that a row may hold."""
    return value if math.isfinite(value) else None


def tell(found: Mapping[str, Any]) -> None:
    """One line of JSON on the standard output, where nothing else is written: what libraries print goes to stderr."""
    os.write(_ANSWERS, f"{json.dumps(found)}\n".encode())


def compiled(torch: Any) -> dict[str, int]:
    """What Dynamo counted: graphs, breaks between them, and code that was compiled again for another input."""
    from torch._dynamo.utils import counters, get_compilation_metrics

    again = [each for each in get_compilation_metrics() if str(each.compile_id or "0/0").split("/")[-1] != "0"]
    return {
        "graphs": int(counters["stats"]["unique_graphs"]),
        "graph_breaks": int(sum(counters["graph_break"].values())),
        "recompiles": len(again),
    }


def launches(torch: Any, step: Any) -> int:
    """Calls by which the host puts work on the GPU in one step: kernels, graphs, copies and fills."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
        step()
        torch.cuda.synchronize()
    names = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "cuLaunchKernel")
    return sum(each.count for each in record.key_averages() if each.key.startswith(names))


# All of them, from the experiment -----------------------------------------------------------------------------------


class Mode:
    """A process that trains in one mode.

    Attributes:
        beside: how many others were warming up at the same time, whose compilers want the same cores.
        warm: what it said of its warm-up; None until it is warm.
        reason: why it gives no more answers; empty while it does.
    """

    def __init__(self, mode: str, batch: int, warm_up: int, folder: str, beside: int) -> None:
        command = [sys.executable, __file__, "--mode", mode, "--batch", str(batch), "--warm-up", str(warm_up)]
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{mode}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/{mode}/triton",
        }
        self.mode, self.beside, self.reason = mode, beside, ""
        self.warm: dict[str, Any] | None = None
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **caches},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None, with a reason, where none came within `seconds` or it failed."""
        if not select.select([self._process.stdout], [], [], max(0.0, seconds))[0]:
            self.reason = "it was not warm in time; raise the setting limit_s"
        elif not (line := self._process.stdout.readline()):
            self._said.seek(0)
            self.reason = "it failed: " + " / ".join(self._said.read().strip().splitlines()[-3:])
        else:
            return json.loads(line)
        self.end()
        return None

    def train(self, steps: int, seconds: float) -> dict[str, Any] | None:
        """The times of so many steps."""
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        return self.answer(seconds)

    def warned(self) -> int:
        """Whether PyTorch wrote that the GPU is too small or too old for a mode: 1 or 0."""
        said = os.pread(self._said.fileno(), 1 << 24, 0).decode(errors="replace").lower()
        return int("not enough" in said)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of every mode."""
    parameters, settings = context.parameters, context.settings
    batch, warm_up, limit = parameters["batch"], parameters["warm_up"], settings["limit_s"]
    wanted = [mode for mode in (SUBJECTS[subject.kernel] for subject in context.subjects) if mode in settings["modes"]]
    beside = len(wanted) - 1 if settings["together"] else 0
    modes: dict[str, Mode] = {}
    times: dict[str, list[list[float]]] = {}
    totals: dict[str, float] = dict.fromkeys(wanted, 0.0)
    peaks: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            start = time.monotonic()
            for mode in wanted:
                modes[mode] = Mode(mode, batch, warm_up, folder, beside)
                if not beside:
                    modes[mode].warm = modes[mode].answer(limit)
            for each in modes.values() if beside else ():
                each.warm = each.answer(limit - (time.monotonic() - start))
            for _ in range(settings["rounds"]):
                for mode, each in modes.items():
                    if each.reason:
                        continue
                    found = each.train(-(-settings["iterations"] // settings["rounds"]), limit)
                    if found is not None:
                        times.setdefault(mode, []).append(found["times_ms"])
                        totals[mode] += found["total_s"]
                        peaks[mode] = found["peak_bytes"]
        finally:
            for each in modes.values():
                each.end()
    for subject in context.subjects:
        mode = SUBJECTS[subject.kernel]
        each = modes.get(mode)
        if each is None or each.reason:
            context.leave_out(subject, each.reason if each else "the setting modes does not name it")
            continue
        for cells in rows(each, times[mode], totals[mode], peaks[mode]):
            yield context.row(subject, **{**dict.fromkeys(NOT_EVERYWHERE), "batch": batch, **cells})


def rows(mode: Mode, times: Sequence[Sequence[float]], total_s: float, peak: int) -> Iterator[dict[str, Any]]:
    """The cells of a mode's rows: the timed steps as a whole, then every part of every step of the warm-up.

    Args:
        times: of the timed steps, ms, a sequence per round.
        total_s, peak: seconds that they took by the host's clock, and bytes of memory.
    """
    from gemmrepro import stats

    step = stats.rounds_interval(times, repeatability=stats.REPEATABILITY)
    steps = [time_ms for one in times for time_ms in one]
    parts = mode.warm["parts"]
    yield {
        "part": STEADY,
        "iterations": len(steps),
        "step_ms": step.value,
        "ci_low_ms": step.low,
        "ci_high_ms": step.high,
        "mean_ms": statistics.fmean(steps),
        "total_s": total_s / len(steps) * STEPS,
        "peak_gb": peak / 1e9,
        "beside": mode.beside,
        "first_s": parts[0]["step"],
        "warm_s": sum(one["step"] for one in parts),
        "slow_steps": slow_steps(parts),
        "warned": mode.warned(),
        **{key: mode.warm[key] for key in WARM},
    }
    for number, one in enumerate(parts, 1):
        for part, seconds in one.items():
            yield {"part": part, "iteration": number, "seconds": seconds}


def slow_steps(parts: Sequence[Mapping[str, float]]) -> int:
    """How many steps of a warm-up took at least twice as long as the quickest."""
    took = [one["step"] for one in parts]
    return sum(seconds >= 2 * min(took) for seconds in took)


STEPS = 500
"""Steps of which the article prints the time."""
STEADY = "steady"
"""The part of a row about a mode as a whole; other rows are about parts of the steps of its warm-up."""
WARM = ("launches", "graphs", "graph_breaks", "recompiles", "first_loss", "last_loss")
"""What a process says of its warm-up as a whole, each a column."""
NOT_EVERYWHERE = (
    *("iterations", "step_ms", "ci_low_ms", "ci_high_ms", "mean_ms", "total_s", "peak_gb", "beside"),
    *("first_s", "warm_s", "slow_steps", "warned", *WARM, "iteration", "seconds"),
)
"""Columns that are empty in some rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=10)
    arguments = parser.parse_args()
    os.dup2(2, 1)
    serve(arguments.mode, arguments.batch, arguments.warm_up)


if __name__ == "__main__":
    main()
