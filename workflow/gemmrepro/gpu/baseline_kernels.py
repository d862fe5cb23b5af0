"""Lists the GPU kernels that baselines launch, with PyTorch's profiler.

    python -m gemmrepro.gpu.baseline_kernels \\
        --names '["cublas.sgemm", "gemm", "fp32", "fp32", "row,row,row", 256, 256, 256]'

Profiling affects the whole process, so a sweep runs this as a child process (`baselines.gpu_kernel_names`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.core.files import write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gpu import baselines, device
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Problem, Shape


def _profile(wanted: Sequence[tuple[str, Problem, Shape]]) -> dict[str, str]:
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise UserError(f"PyTorch cannot be imported ({error}); it is only needed for the kernels' names.") from None
    session = device.open_gpu()

    names: dict[str, str] = {}
    for name, problem, shape in wanted:
        entry = baselines.baseline(name)
        inputs, output = random(problem, shape, shape.n)
        call = entry.bind(session, Operands(problem, shape, tuple(inputs), output))
        call()
        session.sync()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
            call()
            session.sync()
            torch.cuda.synchronize()
        seen = [event.name for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        if seen:
            kind = "" if problem.dtype_in == "fp32" else f" {problem.dtype_in}"
            names[f"{name}{kind} {shape.n}"] = " + ".join(dict.fromkeys(seen))
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.gpu.baseline_kernels", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--names",
        nargs="+",
        required=True,
        metavar="JSON",
        help="print the GPU kernels that run for lists of baseline, op, dtype in, dtype out, layout, m, n and k",
    )
    parser.add_argument("--out", type=Path, help="write them to this file too")
    arguments = parser.parse_args()
    wanted = []
    for item in arguments.names:
        try:
            name, *problem, m, n, k = json.loads(item)
            wanted.append((name, Problem(*problem), Shape(int(m), int(n), int(k))))
        except (ValueError, TypeError):
            raise UserError(
                f"'{item}' is not a list of baseline, op, dtype in, dtype out, layout, m, n and k."
            ) from None
        baselines.baseline(name)
    names = _profile(wanted)
    if arguments.out:
        write_json(arguments.out, names)
    print(json.dumps(names))
    return 0


if __name__ == "__main__":
    run_stage(main)
