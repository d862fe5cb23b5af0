"""The best kernels of every type beside one release of cuBLAS, in a process that loads it before CuPy loads its own.

    LD_PRELOAD="$FOLDER/libcublasLt.so.13 $FOLDER/libcublas.so.13" python kernels/fp8/releases.py '{"n": 4096, ...}'

A process has one cuBLAS, so each release takes a process of its own. Blocks alternate on a hot GPU: kernel, library,
library, kernel. Both products are judged first, the library's by the bound that any library has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gemmrepro.errors import UserError, run_stage

FILES = ("libcublasLt.so.13", "libcublas.so.13")


def folders(place: str) -> list[Path | None]:
    """None for the release that is installed, then the folders in `place` that hold another. Raises UserError if
    `place` has none."""
    if not place:
        return [None]
    found = sorted(path.parent.resolve() for path in Path(place).glob(f"*/{FILES[1]}"))
    if not found:
        raise UserError(f"{place} has no folder with {' and '.join(FILES)}; unpack a release there, or leave it out.")
    return [None, *found]


def beside(folder: Path | None, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a process that loads cuBLAS from `folder` says of `request`. Raises UserError with its last words."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if folder is not None:
        environment["LD_PRELOAD"] = " ".join(str(folder / name) for name in FILES)
    command = [sys.executable, str(Path(__file__).resolve()), json.dumps(request)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
        why = last.removeprefix("gemmrepro: ")
        raise UserError(f"beside cuBLAS of {folder or 'this machine'} nothing could be measured: {why}")
    found: list[dict[str, Any]] = json.loads(answer.stdout.splitlines()[-1])
    return found


def row(session: Any, subject: Mapping[str, str], request: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a row: a kernel's sustained time beside its baseline's, and what is wrong with either product."""
    from gemmrepro import registry, stats, timing
    from gemmrepro.core import dtypes
    from gemmrepro.gpu import baselines
    from gemmrepro.gpu.loaded import Loaded
    from gemmrepro.measure.rounds import Workspace
    from gemmrepro.operations import Shape

    kernel, shape = registry.kernel(subject["kernel"]), Shape.cube(request["n"])
    space, timer = Workspace(session, kernel.problem, shape, request["seed"]), timing.Timer(session)
    library = baselines.baseline(kernel.timing.baseline or "")
    own = Loaded.built(session, kernel, Path(request["build"]), subject["toolkit"]).bind(space.operands(kernel))
    call = library.bind(session, space.operands(None))
    checks = [space.check(own, timer, kernel), space.check(call, timer)]
    output = dtypes.bits(space.operands(None).output)
    stored = output.copy()
    call()
    session.sync()
    same = bool((stored == output).all())
    space.forget_reference()

    def block(launch: Any, estimate: float, seconds: float) -> float:
        plan = timing.Plan(interval=0.0, seconds=seconds, least=6, most=1 << 20)
        graphs = timing.wants_graphs(estimate, None)
        burst = timer.burst([launch], None, "warm", plan, (estimate, None), graphs)
        return stats.median_interval(burst.times).value

    cells: dict[str, Any] = {
        "kernel": subject["kernel"],
        "release": library.version(session).removeprefix("cuBLAS "),
        **dict.fromkeys(("time_us", "library_us", "times", "times_low", "times_high")),
        "library_error": checks[1].err_fro,
        "repeats": int(same),
        "wrong": "; ".join(check.message for check in checks if not check.passed),
    }
    if cells["wrong"]:
        return cells
    sides = ((own, checks[0].estimate_us), (call, checks[1].estimate_us))
    block(*sides[0], request["heat"])
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * request["pairs"]):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side].append(block(*sides[side], request["seconds"]))
    ratio, medians = stats.ratio_interval([times[1]], [times[0]]), [stats.median_interval(each).value for each in times]
    compared = {"time_us": medians[0], "library_us": medians[1], "times": ratio.value}
    return cells | compared | {"times_low": ratio.low, "times_high": ratio.high}


def measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each kernel and release; a wrong product has a row, and no ratio."""
    subjects = {subject.kernel: subject for subject in context.subjects}
    if not subjects:
        return
    build = context.loaded(next(iter(subjects.values()))).path.parent.parent
    asked = [{"kernel": name, "toolkit": subject.toolkit} for name, subject in subjects.items()]
    settings = {name: context.settings[name] for name in ("heat", "seconds", "pairs")}
    request = {**point, **settings, "seed": context.parameters["seed"], "build": str(build.resolve())}
    for folder in folders(context.settings["folder"]):
        for cells in beside(folder, request | {"subjects": asked}):
            yield context.row(subjects[cells.pop("kernel")], n=point["n"], **cells)


def main() -> int:
    """Measures what the first argument asks for, and prints it as JSON."""
    from gemmrepro.gpu import device

    request, session = json.loads(sys.argv[1]), device.open_gpu()
    print(json.dumps([row(session, subject, request) for subject in request["subjects"]]))
    return 0


if __name__ == "__main__":
    run_stage(main)
