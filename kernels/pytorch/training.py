"""A training step of ResNet18, eager or compiled, each mode in a process of its own.

Every process builds the same model from the same seed, takes its first step and the rest of its warm-up, and says so;
then the modes are timed in turn, some steps each and round after round, so that a drift of the clock touches them all
alike. Nothing is downloaded: weights and images are random. PyTorch's caches of compiled code are folders of the
process alone, so that the first step costs what it costs on a machine that has never seen the model.

    python kernels/pytorch/training.py --mode default --batch 64 --warm-up 10

is such a process: it writes one line of JSON once it is warm, and one for each number of steps that it reads.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
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
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    forward = model if mode == EAGER else torch.compile(model, mode=None if mode == "default" else mode)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    torch.cuda.synchronize()
    start = time.perf_counter()
    first_loss = float(step())
    torch.cuda.synchronize()
    first_s = time.perf_counter() - start
    for _ in range(warm_up - 1):
        loss = step()
    last_loss = float(loss)
    warm_s = time.perf_counter() - start
    torch.cuda.reset_peak_memory_stats()
    found = {"first_s": first_s, "warm_s": warm_s, "first_loss": first_loss, "last_loss": last_loss}
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

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def on_gpu(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each mode."""
    from gemmrepro import stats

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
        step = stats.rounds_interval(times[mode], repeatability=stats.REPEATABILITY)
        steps = [time_ms for one in times[mode] for time_ms in one]
        yield context.row(
            subject,
            batch=batch,
            iterations=len(steps),
            step_ms=step.value,
            ci_low_ms=step.low,
            ci_high_ms=step.high,
            mean_ms=statistics.fmean(steps),
            total_s=totals[mode],
            peak_gb=peaks[mode] / 1e9,
            beside=each.beside,
            **{key: each.warm[key] for key in WARM},
        )


WARM = ("first_s", "warm_s", "launches", "graphs", "graph_breaks", "recompiles", "first_loss", "last_loss")
"""What a process says of its warm-up, each a column."""


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
