"""SIGKILL at random moments of real runs: is anything finished lost or made again, and does the next run go on?

    PYTHONPATH=workflow envs/run python tests/campaigns/killed.py --folder /tmp/killed --out killed.json

Needs root, built images, and room for a copy of them. A scratch checkout makes the report of two
families; then the outputs of one stage after the other are removed, and the runs that make them again are killed: the
whole process group, Snakemake alone, one job, one container, or one tool (a compiler, an image builder's). At the end
the results must equal those of the run that nobody disturbed. docs/reliability.md has the outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runs import ROOT, Checkout, Ended, below, changed, command_of, finished, need_root, results_of

from gemmrepro.core.names import REPORT_FOLDERS
from gemmrepro.host.killed_runs import MARK, marked


@dataclass(frozen=True)
class Stage:
    """A stage of the pipeline: its target, what it makes, how often it is killed, and within how many seconds."""

    target: str
    makes: tuple[str, ...]
    kills: int
    seconds: float


STAGES = (
    Stage("resources/images/report.sif", ("resources/images/report.*",), 6, 50),
    Stage("build", ("results/build", "resources/cache/build/*"), 12, 20),
    Stage("gates", ("results/gates",), 6, 8),
    Stage("sweep", ("results/measure",), 6, 10),
    Stage("experiments", ("results/experiments",), 5, 8),
    Stage("verdicts", ("results/verdicts.json",), 5, 8),
    Stage("figures", ("results/figures",), 6, 15),
    Stage("report", ("reports/*.html", *(f"reports/{folder}" for folder in REPORT_FOLDERS)), 6, 15),
)

VICTIMS = ("process group", "tool", "Snakemake", "container", "job")
TOOLS = ("nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "nvdisasm", "cuobjdump", "fatbinary", "nvlink")
TOOLS += ("buildah", "mksquashfs", "apt-get", "dpkg", "pip", "tar")


@dataclass
class Kill:
    """One kill: what was hit, how many seconds after the first job began, and what was wrong afterwards."""

    stage: str
    victim: str
    command: str
    after: float
    code: int
    said: list[str]
    wrong: list[str] = field(default_factory=list)


class Watched:
    """A run whose output is read as it comes."""

    def __init__(self, checkout: Checkout, target: str, **environment: str) -> None:
        self._checkout, self.process = checkout, checkout.start(target, **environment)
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._said.append(line)

    @property
    def said(self) -> str:
        return "".join(self._said)

    def jobs(self) -> list[int]:
        """Its processes, without the guard."""
        return [process for process in below(self.process.pid) if "killed_runs" not in command_of(process)]

    def until_a_job_begins(self) -> bool:
        """False if it ended before."""
        while self.process.poll() is None:
            if any("gemmrepro." in command_of(process) for process in self.jobs()):
                return True
            time.sleep(0.05)
        return False

    def mark(self) -> str:
        """The value of the variable by which its jobs are known."""
        for process in self.jobs():
            with suppress(OSError):
                for variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    if variable.startswith(f"{MARK}=".encode()):
                        return variable.decode().partition("=")[2]
        return ""

    def of_kind(self, victim: str) -> list[int]:
        """The processes that count as `victim`."""
        commands = {process: command_of(process) for process in self.jobs()}
        if victim == "tool":
            return [process for process, said in commands.items() if Path(said.split(" ")[0]).name in TOOLS]
        if victim == "container":
            return [process for process, said in commands.items() if said.startswith("Apptainer runtime parent")]
        return [process for process, said in commands.items() if said.startswith(("python3 -m", "/usr/bin/python3 -m"))]

    def ended(self) -> Ended:
        """Once it has ended; after its death it may take the guard's patience until its jobs have."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(900)
        self._reader.join(30)
        return self._checkout.ended(self.process.returncode, self.said)


def hit(run: Watched, victim: str, dice: random.Random) -> tuple[str, str]:
    """Kill something of the run: `victim`, or the run itself if there is none; returns what, and its command line."""
    if victim in ("tool", "container", "job") and (found := run.of_kind(victim)):
        process = dice.choice(found)
        command = command_of(process)[:80]
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return victim, command
    if victim == "process group":
        os.killpg(run.process.pid, signal.SIGKILL)
        return victim, ""
    run.process.kill()
    return "Snakemake", ""


def kill_once(checkout: Checkout, stage: Stage, victim: str, dice: random.Random) -> Kill | None:
    """Start the stage's run and kill it; None if it ended before."""
    before = checkout.outputs()
    run = Watched(checkout, stage.target)
    if not run.until_a_job_begins():
        assert run.ended().code == 0, run.ended().tail
        return None
    began, wait = time.monotonic(), dice.uniform(0, stage.seconds)
    while time.monotonic() < began + wait and run.process.poll() is None:
        time.sleep(0.02)
    if run.process.poll() is not None:
        return None
    mark = run.mark()
    victim, command = hit(run, victim, dice)
    after = time.monotonic() - began
    ended = run.ended()
    kill = Kill(stage.target, victim, command, round(after, 1), ended.code, ended.lines)
    deadline = time.monotonic() + 20
    while (left := list(marked(mark))) and time.monotonic() < deadline:
        time.sleep(0.1)
    kill.wrong += [f"goes on: {command_of(process)[:80]}" for process in left]
    kill.wrong += [f"lost or made again: {name}" for name in changed(before, checkout.outputs())]
    if "LockException" in ended.said or "--unlock" in ended.said:
        kill.wrong.append("it stopped at a lock")
    return kill


def killed(checkout: Checkout, stage: Stage, dice: random.Random) -> Iterator[Kill]:
    """Kill runs of the stage, each of which goes on where the one before was killed; the last one ends."""
    checkout.remove(*stage.makes)
    count, last = 0, None
    while count < stage.kills:
        victim = VICTIMS[count % len(VICTIMS)]
        kill = kill_once(checkout, stage, victim, dice)
        if kill is None:
            checkout.remove(*stage.makes)
            last = None  # that run said it
            continue
        if last in ("process group", "Snakemake") and not any("was killed" in line for line in kill.said):
            kill.wrong.append("it did not say that the last run was killed")
        last = kill.victim
        count += 1
        yield kill
    before = checkout.outputs()
    ended = checkout.run(stage.target)
    problems = [f"lost or made again: {name}" for name in changed(before, checkout.outputs())]
    if ended.code or problems:
        yield Kill(stage.target, "none: the last run", "", 0.0, ended.code, ended.lines, problems or [ended.tail])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the scratch checkout is made, or is")
    parser.add_argument("--images", type=Path, default=ROOT, help="a checkout whose images are built")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--only", default="", help="a stage's target")
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if not need_root():
        return 1
    checkout = finished(arguments.folder, arguments.images)
    undisturbed, kills = results_of(checkout.folder), list[Kill]()
    for stage in STAGES:
        if arguments.only not in ("", stage.target):
            continue
        for kill in killed(checkout, stage, random.Random(f"{arguments.seed} {stage.target}")):
            kills.append(kill)
            held = "held" if not kill.wrong else f"NOT HELD: {kill.wrong[:3]}"
            print(f"{len(kills):3} {kill.stage} {kill.victim} after {kill.after} s: {held}", flush=True)
    ended = checkout.run()
    now = results_of(checkout.folder)
    other = sorted(name for name in undisturbed.keys() | now.keys() if undisturbed.get(name) != now.get(name))
    outcome = {
        "seed": arguments.seed,
        "tried": len(kills),
        "held": sum(not kill.wrong for kill in kills),
        "last_run": ended.code,
        "results": len(undisturbed),
        "results_that_differ": other,
        "kills": [asdict(kill) for kill in kills],
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(outcome, indent=1) + "\n")
    print(f"{len(kills)} kills, {outcome['held']} held; {len(other)} of {len(undisturbed)} results differ: {other[:9]}")
    return int(outcome["tried"] != outcome["held"] or bool(ended.code) or bool(other))


if __name__ == "__main__":
    sys.exit(main())
