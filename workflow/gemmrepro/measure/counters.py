"""Hardware counters of a kernel's run, read with Nsight Compute (ncu).

    python -m gemmrepro.measure.counters --family ladder --toolkits cuda12,cuda13 --sizes 4096 --build results/build \\
        --out counters.csv
    python -m gemmrepro.measure.counters --launch ladder.naive:cuda13:4096 --build results/build     (what ncu runs)

The first form starts the profiler (gemmrepro.measure.profiler), which runs the second. If no counter can be read, the
table holds only its header, and a line on stderr says why.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core.files import write_atomic
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gpu import device
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.columns import COUNTER_COLUMNS
from gemmrepro.measure.profiler import MARK, collect
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape, shape_of


def _launch(targets: Sequence[str], build: Path, runs: bool) -> None:
    """Run each target once on random data, and nothing else on the GPU.

    Args:
        targets: ``kernel:toolkit:size`` or ``kernel:toolkit:MxNxK``.
        runs: profile every launch of each run, a library's included, and end each run with a marker kernel.

    Raises:
        UserError: a target is malformed, or its binary is missing.
    """
    session = device.open_gpu()
    if runs:
        import cupy

        marker = cupy.RawKernel(f'extern "C" __global__ void {MARK}() {{}}', MARK)
    for target in targets:
        try:
            name, toolkit, size = target.split(":")
            shape = Shape(*map(int, size.split("x"))) if "x" in size else Shape.cube(int(size))
        except (TypeError, ValueError):
            raise UserError(f"'{target}' is not of the form kernel:toolkit:size or kernel:toolkit:MxNxK.") from None
        kernel = registry.kernel(name)
        inputs, output = random(kernel.problem, shape, secrets.randbits(31))
        operands = Operands.of(kernel, shape, inputs, output)
        call = Loaded.built(session, kernel, build, toolkit).bind(operands)
        with _profiled(session) if runs else contextlib.nullcontext():
            call()
            if runs:
                marker((1,), (1,), ())
        session.sync()


@contextlib.contextmanager
def _profiled(session: device.Session) -> Iterator[None]:
    """Profile what the block launches."""
    from cuda.bindings import driver

    session.sync()
    driver.cuProfilerStart()
    yield
    session.sync()
    driver.cuProfilerStop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.counters", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--launch", nargs="+", metavar="KERNEL:TOOLKIT:SIZE", help="launch each once, for a profiler")
    parser.add_argument("--runs", action="store_true", help="with --launch: show the profiler all launches of a run")
    parser.add_argument("--family")
    parser.add_argument("--toolkits", default="cuda12,cuda13")
    parser.add_argument("--sizes", default="4096")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.launch:
        _launch(arguments.launch, arguments.build, arguments.runs)
        return 0
    if not arguments.family or not arguments.out:
        raise UserError("give --family and --out, or --launch.")
    try:
        sizes = [int(size) for size in arguments.sizes.split(",")]
    except ValueError:
        raise UserError(f"--sizes '{arguments.sizes}' is not a list of numbers such as 1024,4096.") from None
    targets = dict.fromkeys(
        (kernel.id, toolkit, shape_of(kernel.compute.op, size))
        for kernel in registry.kernels(arguments.family)
        for toolkit in arguments.toolkits.split(",")
        for size in sizes
        if toolkit in kernel.platform.toolkits and kernel.takes(shape_of(kernel.compute.op, size))
    )
    rows, reason = collect(list(targets), arguments.build)
    if reason:
        print(f"gemmrepro: no hardware counters: {reason}", file=sys.stderr)
    write_atomic(arguments.out, csv_text(map(asdict, rows), COUNTER_COLUMNS))
    return 0


if __name__ == "__main__":
    run_stage(main)
