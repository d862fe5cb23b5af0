"""Tuning: compile every combination of a rung's declared constants, judge and time them, keep the best for each GPU.

    python -m gemmrepro.tune.stage compile --kernel ladder.warptile_tuned --toolkit cuda13 --arch 90 --jobs 8 \\
        --out results/tune/build/ladder.warptile_tuned
    python -m gemmrepro.tune.stage measure --kernel ladder.warptile_tuned --sizes 4096,8192 \\
        --candidates results/tune/build/ladder.warptile_tuned --out results/tune/ladder.warptile_tuned.json
    python -m gemmrepro.tune.stage install results/tune/ladder.warptile_tuned.json

What may be tuned is a `registry.Tunable`. *Compiling* (`gemmrepro.candidates`) needs a toolkit and no GPU; *measuring*
(`gemmrepro.search`) needs a GPU and no toolkit. Both keep what is done: the same command goes on where a killed one
stopped. *Installing* makes the winners what the registry's tuned kernels are built with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json, write_atomic
from gemmrepro.errors import UserError, run_stage
from gemmrepro.tune.candidates import Listing, compile_all, say


def install(paths: Sequence[Path]) -> list[Path]:
    """Enter the winners of result files into ``kernels/<family>/tuned/<gpu>.json``; returns the files written.

    The table of all candidates, where it lies beside the result, goes into a folder of the GPU's name there.

    Raises:
        UserError: a result or a file of winners is corrupt, or names constants outside the space; nothing is written.
    """
    files: dict[Path, dict[str, Any]] = {}
    tables: dict[Path, str] = {}
    for path in paths:
        result = read_json(path, "the tuning result", "run the measure step again")
        try:
            tunable = registry.tunable(result["kernel"])
            winner, params = result["winner"], dict(result["winner"]["params"])
            entry = {
                "target": result["target"],
                "toolkit": result["toolkit"],
                "toolkit_version": result["toolkit_version"],
                "driver": result["driver"],
                "baseline": result["baseline"]["version"],
                "candidates": result["count"]["candidates"],
                "tflops": {size: point["tflops"] for size, point in winner["sizes"].items()},
                "ratio": {size: point["ratio"] for size, point in winner["sizes"].items()},
            }
            target = registry.winners_path(tunable.id.split(".", 1)[0], result["gpu"]["slug"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path} is no tuning result ({type(error).__name__}: {error}); run the measure step again."
            ) from None
        if not tunable.holds(params):
            raise UserError(
                f"{path} names constants that the space of {tunable.id} does not hold ({params}); run the compile and "
                "measure steps again."
            )
        if target not in files:
            files[target] = {}
            if target.is_file():
                files[target] = read_json(target, "the file of winners", "restore it, or delete it and install again")
            if not isinstance(files[target], dict):
                raise UserError(f"the file of winners {target} is corrupt; restore it, or delete it and install again.")
        # In the order of the space, as the candidates were compiled: the same binary has the same build key.
        files[target][tunable.id] = {"params": {name: params[name] for name in tunable.space}, **entry}
        if path.with_suffix(".csv").is_file():
            tables[registry.candidates_path(tunable.id, result["gpu"]["slug"])] = path.with_suffix(".csv").read_text()
        say(f"{tunable.id}: {' '.join(f'{key}={value}' for key, value in params.items())} in {target}")
    for target, winners in files.items():
        write_atomic(target, json.dumps(dict(sorted(winners.items())), indent=2) + "\n")
    for target, text in tables.items():
        write_atomic(target, text)
    return list(files)


def parse_sizes(text: str) -> list[int]:
    """``"4096,8192"`` as [4096, 8192]."""
    try:
        sizes = list(dict.fromkeys(int(size) for size in text.split(",")))
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise UserError(f"--sizes '{text}' is not of the form size,size; for instance 4096,8192.")
    return sizes


def measure(arguments: argparse.Namespace) -> int:
    """Supervise the search, or, as the process that is supervised, do it. Returns an exit code."""
    # Only here: the toolkits' images need not hold what measuring takes.
    from gemmrepro.core.journal import end_with_parent
    from gemmrepro.gpu import device, lock
    from gemmrepro.tune import search

    tunable, sizes = registry.tunable(arguments.kernel), parse_sizes(arguments.sizes)
    if arguments.rounds < 1:
        raise UserError("--rounds must be at least 1.")
    out, csv = arguments.out, arguments.table or arguments.out.with_suffix(".csv")
    journal = arguments.journal or out.parent / "journal" / tunable.id
    listing = Listing.read(arguments.candidates, tunable)
    start = time.monotonic()
    if not arguments.worker:
        end = [] if arguments.budget is None else ["--deadline", str(time.time() + arguments.budget)]
        command = [sys.executable, "-m", "gemmrepro.tune.stage", "measure", "--worker", "--kernel", tunable.id, *end]
        for name, value in {
            "candidates": arguments.candidates,
            "sizes": ",".join(map(str, sizes)),
            "out": out,
            "table": csv,
            "journal": journal,
            "rounds": arguments.rounds,
        }.items():
            command += [f"--{name}", str(value)]
        code = search.supervise(command, journal)
        if code == search.UNFINISHED:
            say(f"stopped after {time.monotonic() - start:.0f} s; run the same command again to continue")
        return code
    end_with_parent()
    session = device.open_gpu()
    deadline = None if arguments.deadline is None else time.monotonic() + arguments.deadline - time.time()
    with lock.exclusive(session):
        if session.other_processes():
            say("another process has this GPU open; if it computes, that will show in these times")
        try:
            bench = search.Bench(session, tunable, listing, journal, deadline)
            search.search(bench, tunable, sizes, out, csv, search.in_rounds(arguments.rounds))
        except search.Unfinished:
            return search.UNFINISHED
        except search.Broken:
            return search.REPLACE
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.tune.stage", description=__doc__.split("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    one = steps.add_parser("compile", help="compile every candidate; needs nvcc on PATH and no GPU")
    one.add_argument("--kernel", required=True, help="the id of a tunable, such as ladder.warptile_tuned")
    one.add_argument("--toolkit", required=True, help="cuda12 or cuda13; must be the one on PATH")
    one.add_argument("--arch", required=True, help="compute capability x 10 of the GPU, such as 90")
    one.add_argument("--out", required=True, type=Path, help="folder of the binaries; kept between runs")
    one.add_argument("--jobs", type=int, default=1, help="compilations at a time")
    two = steps.add_parser("measure", help="judge and time them on this machine's GPU")
    two.add_argument("--kernel", required=True, help="the id of a tunable")
    two.add_argument("--candidates", required=True, type=Path, help="the folder that the compile step wrote")
    two.add_argument("--sizes", required=True, help="comma-separated; all are searched at the first")
    two.add_argument("--out", required=True, type=Path, help="the winner, as JSON")
    two.add_argument("--table", type=Path, help="every candidate, as CSV (default: beside --out)")
    two.add_argument("--journal", type=Path, help="folder of finished pieces, kept between runs")
    two.add_argument("--rounds", type=int, default=5, help="rounds in which the best are timed (default 5)")
    two.add_argument("--budget", type=float, help="stop after this many seconds, with exit code 75")
    two.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    two.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    three = steps.add_parser("install", help="enter winners into kernels/<family>/tuned/<gpu>.json")
    three.add_argument("results", nargs="*", type=Path, help="what the measure step wrote")
    arguments = parser.parse_args()
    # The winners of a space that has changed since must not keep it from being tuned again.
    os.environ["GEMMREPRO_TUNED"] = "none"
    if arguments.step == "compile":
        compile_all(
            registry.tunable(arguments.kernel), arguments.toolkit, arguments.arch, arguments.out, arguments.jobs
        )
        return 0
    if arguments.step == "measure":
        return measure(arguments)
    install(arguments.results)
    return 0


if __name__ == "__main__":
    run_stage(main)
