"""Tuning: compile every combination of a rung's declared constants, judge and time them, keep the best for each GPU.

    python -m gemmrepro tune-compile --kernel ladder.warptile_tuned --toolkit cuda13 --arch 90 --jobs 8 \\
        --out results/tune/build/ladder.warptile_tuned
    python -m gemmrepro tune-measure --kernel ladder.warptile_tuned --sizes 4096,8192 \\
        --candidates results/tune/build/ladder.warptile_tuned --out results/tune/ladder.warptile_tuned.json
    python -m gemmrepro tune-install results/tune/ladder.warptile_tuned.json

What may be tuned is a `registry.Tunable`. *Compiling* needs a toolkit and no GPU; *measuring* needs a GPU and no
toolkit. Both can be resumed: the same command continues where a killed one stopped. *Installing* makes the winners
what the registry's tuned kernels are built with.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json, write_atomic
from gemmrepro.core.journal import card_of, end_with_parent
from gemmrepro.errors import UserError
from gemmrepro.registry import Tunable
from gemmrepro.tune import bench
from gemmrepro.tune.bench import Listing, compile_all, say


def parse_sizes(text: str) -> list[int]:
    """``"4096,8192"`` as [4096, 8192]."""
    try:
        sizes = list(dict.fromkeys(int(size) for size in text.split(",")))
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise UserError(f"--sizes '{text}' is not of the form size,size; for instance 4096,8192.")
    return sizes


def _start_anew() -> None:
    """Keep the winners of a space that has changed since from refusing it."""
    os.environ["GEMMREPRO_TUNED"] = "none"


def compile_step(arguments: Namespace) -> int:
    _start_anew()
    compile_all(registry.tunable(arguments.kernel), arguments.toolkit, arguments.arch, arguments.out, arguments.jobs)
    return 0


def measure_step(arguments: Namespace) -> int:
    """Supervise the search, or, as the process that is supervised, do it."""
    _start_anew()
    tunable, sizes = registry.tunable(arguments.kernel), parse_sizes(arguments.sizes)
    listing = Listing.read(arguments.candidates, tunable)  # refused here once, rather than in every process
    journal = arguments.out.parent / "journal" / tunable.id
    if not arguments.worker:
        command = [sys.executable, "-m", "gemmrepro", "tune-measure", "--worker", "--kernel", tunable.id]
        command += ["--sizes", arguments.sizes, "--candidates", str(arguments.candidates), "--out", str(arguments.out)]
        return bench.supervise(command, journal)
    # Only here: the toolkits' images need not hold what measuring takes.
    from gemmrepro.gpu import device
    from gemmrepro.tune.bench import Bench, search

    end_with_parent()
    session = device.open_gpu(card_of(journal))
    with device.exclusive(session):
        try:
            search(Bench(session, listing, journal), sizes, arguments.out)
        except bench.Broken:
            return bench.REPLACE
    return 0


def install_step(arguments: Namespace) -> int:
    _start_anew()
    install(arguments.results)
    return 0


def install(results: Sequence[Path]) -> list[Path]:
    """Enter the winners of result files into ``kernels/<family>/tuned/<gpu>.json``; returns the files written.
    The table of all candidates, if it lies beside the result, goes into a folder of the GPU's name there. Raises
    UserError, and writes nothing, if a result or a file of winners is corrupt or names constants outside the space."""
    files: dict[Path, dict[str, Any]] = {}
    tables: dict[Path, str] = {}
    for result in results:
        tunable, gpu, entry = _winner(result)
        path = registry.winners_path(tunable.id.split(".", 1)[0], gpu)
        if path not in files:
            restore = "restore it, or delete it and install again"
            files[path] = read_json(path, "the file of winners", restore) if path.is_file() else {}
        files[path][tunable.id] = entry
        table = result.with_suffix(".csv")
        if table.is_file():
            tables[registry.candidates_path(tunable.id, gpu)] = table.read_text()
        constants = " ".join(f"{name}={value}" for name, value in entry["params"].items())
        say(f"{tunable.id}: {constants} in {path}")
    for path, entries in files.items():
        write_atomic(path, json.dumps(dict(sorted(entries.items())), indent=2) + "\n")
    for path, text in tables.items():
        write_atomic(path, text)
    return list(files)


def _winner(path: Path) -> tuple[Tunable, str, dict[str, Any]]:
    """The tunable of a result that `bench.search` wrote, the GPU, and the winner's entry; raises as `install`."""
    result = read_json(path, "the tuning result", "run the measure step again")
    tunable, params, sizes = registry.tunable(result["kernel"]), result["winner"]["params"], result["winner"]["sizes"]
    if not tunable.holds(params):
        raise UserError(
            f"{path} names constants that the space of {tunable.id} does not hold ({params}); run the compile and "
            "measure steps again."
        )
    entry = {
        # In the order of the space, as constants enter the build key.
        "params": {name: params[name] for name in tunable.space},
        **{name: result[name] for name in ("target", "toolkit", "toolkit_version", "driver")},
        "baseline": result["baseline"]["version"],
        "candidates": result["count"]["candidates"],
        **{name: {size: point[name] for size, point in sizes.items()} for name in ("tflops", "ratio")},
    }
    return tunable, result["gpu"]["slug"], entry
