"""Hardware counters of single launches, read with Nsight Compute (ncu).

    python -m gemmrepro.counters --family ladder --toolkits cuda12,cuda13 --sizes 4096 --build results/build \\
        --out counters.csv
    python -m gemmrepro.counters --launch ladder.naive:cuda13:4096 --build results/build     (what ncu runs)

ncu replays each launch once a pass, with caches flushed before each, and leaves the clocks alone. Where it is missing
or may not read the counters (a permission of the driver), the table has its header only, and a line says why.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmrepro import gpu, registry
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, write_atomic
from gemmrepro.operands import Operands, random, shape_of
from gemmrepro.registry import Shape
from gemmrepro.tables import csv_text

METRICS = {
    "gpu__time_duration.sum": "time of the launch under the profiler",
    "dram__bytes.sum": "bytes moved through DRAM",
    "dram__bytes_read.sum": "bytes read from DRAM",
    "dram__bytes.sum.per_second": "DRAM throughput",
    "lts__t_bytes.sum": "bytes that L2 was asked for",
    "smsp__sass_inst_executed_op_global_ld.sum": "global load instructions, counted once a warp",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": "multiply-adds, counted once a thread",
    "smsp__inst_executed.sum": "all instructions, counted once a warp",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "requests of global loads to L1",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "32-byte sectors those requests touch; 4 a request is coalesced",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "bank conflicts of shared loads",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "bank conflicts of shared stores",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "cycles in which a scheduler issued an instruction",
    "smsp__inst_executed_pipe_fma.sum": "instructions of the multiply-add pipes, counted once a warp",
    "sm__inst_executed_pipe_tensor_op_gmma.sum": "warpgroup matrix instructions, counted once a warp",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": "cycles in which mma.sync was under way",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "accesses of threads to shared memory, a cycle each",
    "sm__inst_executed_pipe_tensor_op_hmma.sum": "tensor core instructions, counted once a warp",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "32-byte sectors that global stores touch",
    "lts__t_sector_hit_rate.pct": "requests that the L2 could serve itself",
    "launch__occupancy_limit_registers": "blocks that a multiprocessor's registers hold",
    "launch__occupancy_limit_shared_mem": "blocks that its shared memory holds, as it was split for this launch",
    "launch__waves_per_multiprocessor": "blocks of the launch, divided by those that run at the same time",
    "sm__cycles_elapsed.max": "cycles of the launch",
}

Target = tuple[str, str, Shape]
"""Kernel id, toolkit, shape."""

_DENIED = re.compile(r"ERR_NVGPUCTRPERM|permission|LibraryNotLoaded|not supported|No kernels were profiled", re.I)
_UNKNOWN = re.compile(r"Failed to find metric[s]?\s+(?:regex:)?['\"]?([\w.]+)", re.I)


def parse(text: str) -> list[tuple[str, str, float, str]]:
    """ncu's CSV as [(launch id, metric, value, unit)], whatever it printed before the table.

    Raises:
        ValueError: there is no table in it.
    """
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith('"ID",')]
    if not starts:
        raise ValueError("no table in the profiler's output")
    rows = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[starts[0] :]))):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
        rows.append((row["ID"], row["Metric Name"], value, row["Metric Unit"] or ""))
    return rows


def collect(targets: Sequence[Target], build: Path) -> tuple[list[dict[str, Any]], str]:
    """Read METRICS of one launch of each target.

    Returns:
        (rows of counters.csv; why there are none, or an empty string).
    """
    if not targets:
        return [], ""
    ncu = shutil.which("ncu")
    if ncu is None:
        return [], "ncu is not on PATH (Nsight Compute)"
    metrics = list(METRICS)
    entries = "|".join(sorted({registry.kernel(kernel).at(shape).entry for kernel, _, shape in targets}))
    while True:
        command = [
            *(ncu, "--csv", "--clock-control", "none", "--print-units", "base", "--metrics", ",".join(metrics)),
            *("--kernel-name-base", "function", "--kernel-name", f"regex:^({entries})$"),
            *(sys.executable, "-m", "gemmrepro.counters", "--build", str(Path(build).resolve()), "--launch"),
            *(f"{kernel}:{toolkit}:{shape}" for kernel, toolkit, shape in targets),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "workflow")
        output = answer.stdout + answer.stderr
        unknown = _UNKNOWN.search(output)
        # A metric that this chip or this ncu does not know is left out; the others still count.
        if unknown and unknown[1] in metrics:
            metrics.remove(unknown[1])
            continue
        break
    try:
        readings = parse(answer.stdout)
    except ValueError:
        lines = [line.removeprefix("==ERROR== ") for line in output.splitlines() if _DENIED.search(line)]
        lines = lines or [line for line in output.splitlines() if line.strip()][-1:]
        return [], f"ncu could not read them: {lines[0] if lines else f'exit code {answer.returncode}'}"
    order = list(dict.fromkeys(launch for launch, *_ in readings))
    if len(order) != len(targets):
        return [], f"ncu profiled {len(order)} launches of {len(targets)}"
    rows = []
    for launch, metric, value, unit in readings:
        kernel, toolkit, shape = targets[order.index(launch)]
        rows.append(
            {
                "kernel": kernel,
                "toolkit": toolkit,
                "m": shape.m,
                "n": shape.n,
                "k": shape.k,
                "metric": metric,
                "value": int(value) if value.is_integer() else value,
                "unit": unit,
                "build_key": gpu.build_record(registry.kernel(kernel), build, toolkit)["build_key"],
                "status": "current",
            }
        )
    return rows, ""


def _launch(targets: Sequence[str], build: Path) -> None:
    """Launch each target once, on random data, and nothing else on the GPU."""
    session = gpu.open_gpu()
    for target in targets:
        try:
            name, toolkit, size = target.split(":")
            shape = Shape(*map(int, size.split("x"))) if "x" in size else Shape.cube(int(size))
        except (TypeError, ValueError):
            raise UserError(f"'{target}' is not of the form kernel:toolkit:size or kernel:toolkit:MxNxK.") from None
        kernel = registry.kernel(name)
        inputs, output = random(kernel.problem, shape, secrets.randbits(31))
        operands = Operands.of(kernel, shape, inputs, output)
        gpu.Loaded(session, kernel, build, toolkit).bind(operands)()
        session.sync()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.counters", description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--launch", nargs="+", metavar="KERNEL:TOOLKIT:SIZE", help="launch these once, for a profiler")
    parser.add_argument("--family")
    parser.add_argument("--toolkits", default="cuda12,cuda13")
    parser.add_argument("--sizes", default="4096")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.launch:
        _launch(arguments.launch, arguments.build)
        return 0
    if not arguments.family or not arguments.out:
        raise UserError("give --family and --out, or --launch.")
    from gemmrepro.measurements import COUNTER_COLUMNS

    try:
        sizes = [int(size) for size in arguments.sizes.split(",")]
    except ValueError:
        raise UserError(f"--sizes '{arguments.sizes}' is not a list of numbers such as 1024,4096.") from None
    targets = dict.fromkeys(
        (kernel.id, toolkit, shape_of(kernel.op, size))
        for kernel in registry.kernels(arguments.family)
        for toolkit in arguments.toolkits.split(",")
        for size in sizes
        if toolkit in kernel.toolkits and kernel.takes(shape_of(kernel.op, size))
    )
    rows, reason = collect(list(targets), arguments.build)
    if reason:
        print(f"gemmrepro: no hardware counters: {reason}", file=sys.stderr)
    write_atomic(arguments.out, csv_text(rows, COUNTER_COLUMNS))
    return 0


if __name__ == "__main__":
    run_stage(main)
