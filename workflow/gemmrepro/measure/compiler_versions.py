"""cuTile's kernels by version of the compiler: what each makes of the same sources, and how fast it is.

    python -m gemmrepro.measure.compiler_versions compile --family cutile --jobs 2 \\
        --environments resources/compilers --binaries results/compilers
    python -m gemmrepro.measure.compiler_versions time --family cutile --sizes 4096,8192 \\
        --binaries results/compilers --out results/compilers/times.csv

*Compiling* needs the package index, cuobjdump, nvdisasm and fatbinary, and no GPU; it writes the family's table,
``kernels/<family>/compilers.csv``, which the report shows. Rows of today's sources are kept. *Timing* needs a GPU and
the binaries, and no compiler: each kernel is judged once and timed in alternation with its baseline, all versions of
one kernel within one round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import registry, stats, timing
from gemmrepro.build import versions
from gemmrepro.core.files import write_atomic
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gpu import baselines, device, lock
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.workspace import Workspace
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

TIMES = ("kernel", "compiler", "n", "round", "us", "baseline_us", "ratio", "low", "high", "error")
"""Columns of the times: medians in µs, and the ratio baseline time / kernel time with its 95 % interval."""

PLAN = timing.Plan(interval=0.005, seconds=0.1, least=5, most=100)


def kernels_of(family: str) -> list[Kernel]:
    """The family's kernels in cuTile. Raises UserError if it has none."""
    found = [kernel for kernel in registry.kernels(family) if kernel.code.compiler == "cutile"]
    if not found:
        raise UserError(f"family {family} has no kernels in cuTile, and only its compiler's versions are compared.")
    return found


def compile_step(arguments: argparse.Namespace) -> int:
    """Compile every kernel with every version, and write the family's table. Returns an exit code."""
    kernels = kernels_of(arguments.family)
    made: list[versions.Made] = []
    known = versions.read(versions.path_of(arguments.family))
    for version in arguments.versions.split(","):
        python = versions.environment(version, arguments.environments.resolve())
        folder = arguments.binaries.resolve() / version
        rows = versions.compile_all(kernels, version, python, folder, arguments.jobs, known)
        refused = sum(bool(row.error) for row in rows)
        print(f"{version}: {len(rows) - refused} of {len(rows)} entry points compiled", file=sys.stderr)
        made += rows
    order = {(kernel.id, code.code.entry): place for place, (kernel, code) in enumerate(_codes(kernels))}
    made.sort(key=lambda row: order[row.kernel, row.entry])
    write_atomic(versions.path_of(arguments.family), versions.text(made))
    return 0


def _codes(kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, Kernel]]:
    return ((kernel, code) for kernel in kernels for code in kernel.codes)


def time_step(arguments: argparse.Namespace) -> int:
    """Time every kernel with a baseline that every version compiled. Returns an exit code."""
    session = device.open_gpu()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rows: list[dict[str, Any]] = []
    with lock.exclusive(session):
        for number in range(arguments.rounds):
            for kernel in kernels_of(arguments.family):
                for size in sizes:
                    if kernel.timing.baseline and kernel.timing.timed and _times(kernel, size):
                        rows += _timed(session, kernel, size, number, arguments)
                        write_atomic(arguments.out, csv_text(rows, TIMES))
    return 0


def _times(kernel: Kernel, size: int) -> bool:
    """Whether a sweep would time `kernel` at this size."""
    return kernel.takes(Shape.cube(size)) and (not kernel.timing.timed_to or size <= kernel.timing.timed_to)


def _timed(
    session: device.Session, kernel: Kernel, size: int, number: int, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """One round of one kernel at one size: a row for each version, on the same operands."""
    timer, shape = timing.Timer(session), Shape.cube(size)
    workspace = Workspace(session, kernel.problem, shape, fresh_seeds(1)[0])
    baseline = baselines.baseline(str(kernel.timing.baseline)).bind(session, workspace.operands(None))
    theirs = workspace.check(baseline, timer)
    for version in arguments.versions.split(","):
        known = {"kernel": kernel.id, "compiler": version, "n": size, "round": number}
        folder = arguments.binaries / version
        if not versions.binary(folder, kernel).is_file():
            continue  # the compiler refuses it; the family's table says why
        try:
            loaded = Loaded.from_file(session, kernel, versions.binary(folder, kernel), version)
            call = loaded.bind(workspace.operands(kernel))
            ours = workspace.check(call, timer, kernel)
        except UserError as error:
            yield known | {"error": str(error)[:160]}
            continue
        if not (ours.passed and theirs.passed):
            yield known | {"error": ours.message or theirs.message}
            continue
        estimates = (ours.estimate_us, theirs.estimate_us)
        graphs = timing.wants_graphs(*estimates) and kernel.capturable
        burst = timer.burst([call], [baseline], "warm", PLAN, estimates, graphs)
        yield known | _row(burst)


def _row(burst: timing.Burst) -> dict[str, Any]:
    ratio = stats.ratio_interval([burst.baseline], [burst.times])
    mine, theirs = (stats.median_interval(times).value for times in (burst.times, burst.baseline))
    return {"us": mine, "baseline_us": theirs, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.compiler_versions", description=str(__doc__).split("\n")[0]
    )
    steps = parser.add_subparsers(required=True)
    for name, run, purpose in (
        ("compile", compile_step, "compile with every version and write the family's table; needs no GPU"),
        ("time", time_step, "time what was compiled on this machine's GPU"),
    ):
        step = steps.add_parser(name, help=purpose)
        step.set_defaults(run=run)
        step.add_argument("--family", default="cutile", help="a family with kernels in cuTile (default cutile)")
        step.add_argument("--versions", default=",".join(versions.VERSIONS), help="of nvidia-cuda-tileiras, by commas")
        step.add_argument("--binaries", required=True, type=Path, help="folder of the cubins")
        if name == "compile":
            step.add_argument("--environments", required=True, type=Path, help="folder of the compilers; kept")
            step.add_argument("--jobs", type=int, default=1, help="compilations at a time")
        else:
            step.add_argument("--sizes", default="4096,8192", help="M = N = K, by commas")
            step.add_argument("--rounds", type=int, default=3, help="rounds, each on new operands (default 3)")
            step.add_argument("--out", required=True, type=Path, help="the times, as CSV")
    return parser


def main() -> int:
    """Command line; one of two steps."""
    arguments = _parser().parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    run_stage(main)
