"""A disk that runs full while a stage is at work: one clear line, nothing lost, and the next run goes on.

    PYTHONPATH=workflow envs/run python tests/campaigns/full_disk.py --folder /tmp/killed --out full-disk.json

Needs root. In a scratch checkout with a finished run (`killed.py` leaves one) a small file system is mounted over one
of the folders that a run writes to, in a namespace of its own. A stage's outputs are removed, and the disk is filled
before the run starts, or once the stage's first job has begun; then the space is freed and the command repeated.
docs/reliability.md has the outcome.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from killed import STAGES, Watched
from runs import ROOT, Checkout, Ended, changed, finished, need_root, record_of, results_of

ROOM = 48 << 20
"""Bytes that a file system has left once the folder's content is on it: enough for a run to begin."""


@dataclass(frozen=True)
class Full:
    """A full disk: over which folder, at which stage, whether it is full from the start, and the room before that."""

    folder: str
    stage: str
    from_start: bool = False
    room: int = ROOM


CASES = (
    *(Full("results", stage) for stage in ("build", "gates", "sweep", "experiments", "verdicts", "figures")),
    Full("reports", "report"),
    Full("resources/images", "resources/images/report.sif", room=3 << 30),  # an image is built beside its place
    Full("resources/cache/build", "build"),
    Full("scratch", "build"),
    *(Full(".snakemake", stage) for stage in ("build", "figures")),
    *(
        Full(folder, "verdicts", from_start=True)
        for folder in ("results", "reports", "resources", ".snakemake", "scratch")
    ),
)


@dataclass
class Outcome:
    """What became of a case."""

    folder: str
    stage: str
    from_start: bool
    code: int
    said: list[str]
    wrong: list[str] = field(default_factory=list)


def mounted(folder: Path, room: int) -> Path:
    """Move a folder's content to a file system over it with little room; returns the file that fills it."""
    folder.mkdir(parents=True, exist_ok=True)
    held = folder.parent / f".held-{folder.name}"
    subprocess.run(["cp", "-a", folder, held], check=True)
    used = sum(path.lstat().st_size + 4096 for path in held.rglob("*"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={used + room}", "tmpfs", folder], check=True)
    subprocess.run(["cp", "-a", f"{held}/.", folder], check=True)
    shutil.rmtree(held)
    return folder / ".fill"


def filled(fill: Path) -> None:
    """Fill the file system that holds `fill`."""
    with fill.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def run_full(checkout: Checkout, case: Full, fill: Path, environment: dict[str, str]) -> Ended:
    """Run the stage with a disk that is full or fills up."""
    if case.from_start:
        filled(fill)
        return checkout.run(case.stage, **environment)
    run = Watched(checkout, case.stage, **environment)
    if run.until_a_job_begins():
        while run.process.poll() is None:  # what a job removes meanwhile is filled again
            filled(fill)
            time.sleep(0.05)
    return run.ended()


def recorded(checkout: Checkout, output: str) -> bool:
    """Whether Snakemake has a whole record of an output."""
    path = checkout.folder / record_of(output)
    return path.is_file() and path.read_bytes().endswith(b"}")


def tried(checkout: Checkout, case: Full, expected: dict[str, str]) -> Outcome:
    folder = checkout.folder / case.folder
    environment = {"TMPDIR": str(folder)} if case.folder == "scratch" else {}
    stage = next(stage for stage in STAGES if stage.target == case.stage)
    settled = checkout.run()  # the case before has left what it made on its mount, and what it noted here
    assert settled.code == 0, settled.tail
    fill = mounted(folder, case.room)
    # The cache of builds stays, but where it is the point, or compilers' temporary files are.
    compiled = case.folder in ("resources/cache/build", "scratch")
    checkout.remove(*(made for made in stage.makes if "cache" not in made or compiled))
    before = checkout.outputs()
    ended = run_full(checkout, case, fill, environment)
    outcome = Outcome(case.folder, case.stage, case.from_start, ended.code, ended.lines)
    full = [line for line in ended.lines if "full" in line]
    if ended.code and not full:
        outcome.wrong.append(f"no line about the disk: {ended.last_line}")
    if case.from_start and ended.code != 1:
        outcome.wrong.append("it did not refuse to begin")
    outcome.wrong += [f"lost: {name}" for name in changed(before, checkout.outputs())]
    fill.unlink(missing_ok=True)
    before = checkout.outputs()
    if case.folder == ".snakemake":  # what Snakemake could not record has not finished
        before = {name: state for name, state in before.items() if recorded(checkout, name)}
    again = checkout.run(case.stage, **environment)
    if again.code:
        outcome.wrong.append(f"the next run failed: {again.last_line}")
    outcome.wrong += [f"lost or made again: {name}" for name in changed(before, checkout.outputs())]
    now = results_of(checkout.folder)
    outcome.wrong += [f"differs: {name}" for name in expected if now.get(name) != expected[name]]
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="a scratch checkout with a finished run")
    parser.add_argument("--images", type=Path, default=ROOT, help="a checkout whose images are built")
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="these alone, by number")
    parser.add_argument("--case", type=int, help="try this one alone, in this process")
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if not need_root("unshare", "mount"):
        return 1
    if arguments.case is not None:
        checkout = Checkout(arguments.folder.resolve())
        outcome = tried(checkout, CASES[arguments.case], results_of(checkout.folder))
        print(json.dumps(asdict(outcome)))
        return 0
    checkout = finished(arguments.folder, arguments.images)
    outcomes = []
    for number in arguments.cases:
        case = CASES[number]
        command = [sys.executable, __file__, "--folder", checkout.folder, "--case", str(number)]
        # Private mounts go with the process; what a run made on them is made again by the next case's run.
        done = subprocess.run(["unshare", "--mount", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outcomes.append(json.loads(done.stdout.splitlines()[-1]))
        held = "held" if not outcomes[-1]["wrong"] else f"NOT HELD: {outcomes[-1]['wrong'][:3]}"
        print(f"{case}: exit code {outcomes[-1]['code']}, {held}: {outcomes[-1]['said'][-1:]}", flush=True)
    held = sum(not outcome["wrong"] for outcome in outcomes)
    if arguments.out:
        arguments.out.write_text(json.dumps({"tried": len(outcomes), "held": held, "cases": outcomes}, indent=1) + "\n")
    print(f"{len(outcomes)} tried, {held} held")
    return int(held != len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
