"""How long a live run's jobs on the GPU took, by family and stage, from Snakemake's log of it.

    python tests/campaigns/live_run.py LOG --gpus "4 NVIDIA H200" --cores 64 --commit d543b38 --out RECORDED.json
    python tests/campaigns/live_run.py --read tests/campaigns/recorded/live-run.json

Each job of gates, sweep, regimes and experiments has a GPU of its own, so their sum is what one GPU would be busy for.
On one GPU a job counts from the end of the job before it: it has started by then, and waits. `--on N` also prints how
long N GPUs would be, with the jobs in that order.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

STAGES = {"gate_numeric": "gates", "measure": "sweep", "measure_regimes": "regimes"}
"""By rule; an experiment's rule is experiments_of_<family>."""

_TIME = re.compile(r"\[(\w+ \w+ +\d+ [\d:]+ \d+)\]")
_BEGUN = re.compile(r"Job (\d+): (?:Measuring|Checking the numbers of|Experiments of) (\w+)")
_ENDED = re.compile(r"Finished jobid: (\d+) \(Rule: (\w+)\)")
_FAILED = re.compile(r"Error in rule (\w+):")
_FAILED_JOB = re.compile(r"    jobid: (\d+)")


@dataclass(frozen=True)
class Job:
    """A job on the GPU; `begin` and `end` are seconds since the first one began. No sum counts one that failed."""

    stage: str
    family: str
    begin: int
    end: int
    failed: bool = False


def jobs(log: Iterable[str]) -> list[Job]:
    """The jobs on the GPU that ended in a log of Snakemake's, the first one to begin first."""
    now, begun = datetime.min, dict[str, tuple[datetime, str]]()
    found, failing = list[tuple[datetime, datetime, str, str, bool]](), ""

    def end(number: str, rule: str, failed: bool) -> None:
        stage = "experiments" if rule.startswith("experiments_of_") else STAGES.get(rule)
        if stage and number in begun:
            begin, family = begun[number]
            found.append((begin, now, stage, family, failed))

    for line in log:
        if time := _TIME.match(line):
            now = datetime.strptime(time[1], "%a %b %d %H:%M:%S %Y")
        elif start := _BEGUN.match(line):
            begun[start[1]] = (now, start[2])
        elif ended := _ENDED.match(line):
            end(ended[1], ended[2], failed=False)
        elif failure := _FAILED.match(line):
            failing = failure[1]
        elif failing and (number := _FAILED_JOB.match(line)):
            end(number[1], failing, failed=True)
            failing = ""
    first = min((begin for begin, *_ in found), default=datetime.min)
    return [
        Job(stage, family, int((begin - first).total_seconds()), int((end - first).total_seconds()), failed)
        for begin, end, stage, family, failed in sorted(found)
    ]


def in_turn(found: Iterable[Job]) -> list[Job]:
    """The jobs of a run on one GPU, each from the end of the one before it."""
    last, clipped = 0, []
    for job in sorted(found, key=lambda job: job.end):
        clipped.append(replace(job, begin=min(job.end, max(job.begin, last))))
        last = job.end
    return clipped


def table(found: Iterable[Job]) -> str:
    """Seconds by family and stage, and their sums, as a table in Markdown; without jobs that failed."""
    found = [job for job in found if not job.failed]
    stages = ("gates", "sweep", "regimes", "experiments")

    def line(name: str, of: Iterable[Job]) -> str:
        of = list(of)
        each = [sum(job.end - job.begin for job in of if job.stage == stage) for stage in stages]
        return f"| {name} | " + " | ".join(str(seconds or "") for seconds in (*each, sum(each))) + " |"

    families = dict.fromkeys(job.family for job in found)
    lines = [line(name, (job for job in found if job.family == name)) for name in families]
    return "\n".join([f"| seconds | {' | '.join(stages)} | all |", "|---" * 6 + "|", *lines, line("all", found)])


def scheduled(found: Iterable[Job], gpus: int) -> int:
    """Seconds until the last job ends if each, in order, takes the first free GPU once its family's gates are done."""
    free, gated, last = [0] * gpus, dict[str, int](), 0
    for job in sorted((job for job in found if not job.failed), key=lambda job: (job.stage != "gates", job.begin)):
        begin = max(heapq.heappop(free), gated.get(job.family, 0))
        end = begin + job.end - job.begin
        heapq.heappush(free, end)
        if job.stage == "gates":
            gated[job.family] = end
        last = max(last, end)
    return last


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--gpus", default="", help="how many of which model")
    parser.add_argument("--cores", type=int, help="Snakemake's --cores")
    parser.add_argument("--commit", default="")
    parser.add_argument("--date", default="")
    parser.add_argument("--seconds", type=int, help="of the whole run")
    parser.add_argument("--out", type=Path, help="add the run to this file of runs")
    parser.add_argument("--read", type=Path, help="print the runs of such a file")
    parser.add_argument("--on", type=int, nargs="*", default=[1, 2, 4], metavar="N")
    options = parser.parse_args()
    if bool(options.log) == bool(options.read):
        parser.error("give a log, or --read")
    if options.read:
        runs = json.loads(options.read.read_text())
    else:
        found = jobs(options.log.read_text(errors="replace").splitlines())
        found = in_turn(found) if options.gpus.startswith("1 ") else found
        facts = {name: getattr(options, name) for name in ("gpus", "cores", "commit", "date", "seconds")}
        runs = [*(json.loads(options.out.read_text()) if options.out and options.out.exists() else [])]
        runs.append(facts | {"jobs": [asdict(job) for job in found]})
        if options.out:
            options.out.write_text(json.dumps(runs, indent=1) + "\n")
    for run in runs:
        found = [Job(**job) for job in run["jobs"]]
        print(f"\n{run['gpus']}, --cores {run['cores']}, {run['commit']}: {run['seconds']} s\n\n{table(found)}\n")
        for gpus in options.on:
            print(f"on {gpus} GPU: {scheduled(found, gpus) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
