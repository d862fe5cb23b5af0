"""Lists the GPU kernels that baselines launch, with PyTorch's profiler, or with CUPTI where there is no PyTorch.

    python -m gemmrepro baseline-kernels \\
        --names '["cublas.sgemm", "gemm", "fp32", "fp32", "row,row,row", 256, 256, 256, null]'

Profiling affects the whole process, so a sweep runs this as a child process (`baselines.gpu_kernel_names`).
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from gemmrepro.core.files import write_json
from gemmrepro.errors import UserError
from gemmrepro.gpu import baselines, device
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Problem, Shape

Wanted = tuple[str, Problem, Shape, int | None]
"""Baseline, problem, shape, and the number of the algorithm that a trial chose; None if there is no choice."""


def _profiler() -> Callable[[Callable[[], None]], list[str]]:
    """A function that lists the kernels that a call launches, by PyTorch's profiler, or else by CUPTI."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return _cupti()

    def kernels(call: Callable[[], None]) -> list[str]:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
            call()
            torch.cuda.synchronize()
        return [event.name for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]

    return kernels


def _cupti() -> Callable[[Callable[[], None]], list[str]]:
    try:
        from cupti import cupti
    except ImportError as error:
        raise UserError(
            f"neither PyTorch nor CUPTI can be imported ({error}); they are only needed for the kernels' names."
        ) from None
    # A memset that a library launches with its kernel takes time too: PyTorch's profiler lists it by this name.
    named = {cupti.ActivityKind.MEMSET: "Memset (Device)"}
    kinds = (cupti.ActivityKind.CONCURRENT_KERNEL, *named)
    seen: list[tuple[int, str]] = []

    def completed(activities: Sequence[Any]) -> None:
        seen.extend((each.start, named.get(each.kind) or each.name) for each in activities if each.kind in kinds)

    def kernels(call: Callable[[], None]) -> list[str]:
        cupti.activity_flush_all(1)
        seen.clear()
        call()
        cupti.activity_flush_all(1)
        return [name for _, name in sorted(seen)]

    cupti.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    for kind in kinds:
        cupti.activity_enable(kind)
    return kernels


def _profile(wanted: Sequence[Wanted]) -> dict[str, str]:
    kernels = _profiler()
    session = device.open_gpu()
    names: dict[str, str] = {}
    for name, problem, shape, chosen in wanted:
        entry = baselines.baseline(name)
        inputs, output = random(problem, shape, shape.n)
        if chosen is not None:
            session.trials.take(problem, shape, chosen, name)
        call = entry.bind(session, Operands(problem, shape, tuple(inputs), output))
        call()
        session.sync()

        def finished(launch: Callable[[], None] = call) -> None:
            launch()
            session.sync()

        if seen := kernels(finished):
            names[baselines.place(name, problem, shape)] = " + ".join(dict.fromkeys(seen))
    return names


def main(options: Namespace) -> int:
    """Print the GPU kernels behind baselines, as JSON."""
    wanted = []
    for item in options.names:
        try:
            name, *problem, m, n, k, chosen = json.loads(item)
            shape = Shape(int(m), int(n), int(k))
            wanted.append((name, Problem(*problem), shape, None if chosen is None else int(chosen)))
        except (ValueError, TypeError):
            raise UserError(
                f"'{item}' is not a list of baseline, op, dtype in, dtype out, layout, m, n, k and algorithm."
            ) from None
        baselines.baseline(name)
    names = _profile(wanted)
    if options.out:
        write_json(options.out, names)
    print(json.dumps(names))
    return 0
