"""Two runs in one checkout at once, and a run while `record` files what it measured: who is refused, and how?

    PYTHONPATH=workflow envs/run python tests/campaigns/two_at_once.py --folder /tmp/killed --out two-at-once.json

Needs root. In a scratch checkout with a finished run (`killed.py` leaves one) a second run is started at a random
moment of a first one: it must be refused in one line, and the first one must end as if it were alone. Then a process
files a recording over and over, file by file, while runs read it: each run must end with one version of it, or refuse
it in one line; and once nobody writes, it must end. docs/reliability.md has the outcome.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from killed import STAGES, Watched
from runs import ROOT, Checkout, finished, need_root, results_of

from gemmrepro.core.files import write_atomic
from gemmrepro.measure.checks.manifest import MANIFEST, write_manifest
from gemmrepro.measure.recording import FILES, RUN

FAMILY = "memory"


@dataclass
class Pair:
    """A run beside something else: the exit codes and lines of the run in question, and what was wrong."""

    what: str
    code: int
    said: list[str]
    wrong: list[str] = field(default_factory=list)


def second_run(checkout: Checkout, target: str, expected: dict[str, str], dice: random.Random) -> Pair:
    """Start a second run while the first is at work on `target`, whose outputs are removed before."""
    stage = next(stage for stage in STAGES if stage.target == target)
    checkout.remove(*stage.makes)
    first = Watched(checkout, target)
    first.until_a_job_begins()
    time.sleep(dice.uniform(0, 2))
    second = checkout.run(target)
    ended = first.ended()
    pair = Pair(f"a second run during {target}", second.code, second.lines)
    if f"another run (process {first.process.pid} " not in " ".join(second.lines) or second.code != 1:
        pair.wrong.append(f"the second run: {second.last_line}")
    if ended.code:
        pair.wrong.append(f"the first run: {ended.last_line}")
    now = results_of(checkout.folder)
    pair.wrong += [f"differs: {name}" for name in expected if now.get(name) != expected[name]]
    return pair


class Writer(threading.Thread):
    """Files two versions of a recording in turn, in the order in which `record` does: its manifest last."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder, self._end = folder, threading.Event()
        self.versions = [{name: (folder / name).read_bytes() for name in FILES}]
        run = json.loads(self.versions[0][RUN])
        other = json.dumps(run | {"date": "2026-11-21T00:00:00Z"}, indent=2, sort_keys=True) + "\n"
        self.versions.append({**self.versions[0], RUN: other.encode()})

    def file(self, version: dict[str, bytes]) -> None:
        for name, data in version.items():
            write_atomic(self._folder / name, data)
            time.sleep(0.02)
        write_manifest(self._folder)

    def run(self) -> None:
        while not self._end.is_set():
            for version in self.versions[::-1]:
                self.file(version)

    def end(self) -> None:
        self._end.set()
        self.join()


def beside_record(checkout: Checkout) -> Pair:
    """Run the sweep's stage, which reads recordings, while one of them is being filed."""
    recorded = checkout.folder / "reports/recorded/h200" / FAMILY
    stage = next(stage for stage in STAGES if stage.target == "sweep")
    checkout.remove(*stage.makes)
    writer = Writer(recorded)
    writer.start()
    ended = checkout.run("sweep")
    writer.end()
    pair = Pair("a run while record files", ended.code, ended.lines)
    refusals = [line for line in ended.said.splitlines() if line.startswith("gemmrepro: ") and MANIFEST in line]
    if ended.code and len(set(refusals)) != 1:
        pair.wrong.append(f"no line, or several: {ended.last_line}")
    again = checkout.run("sweep")
    if again.code:
        pair.wrong.append(f"the run after it: {again.last_line}")
    elif _date((checkout.folder / "results/measure" / FAMILY / RUN).read_bytes()) != _date(
        (recorded / RUN).read_bytes()
    ):
        pair.wrong.append("it did not take the version that was filed last")
    return pair


def _date(run: bytes) -> str:
    return json.loads(run)["date"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="a scratch checkout with a finished run")
    parser.add_argument("--images", type=Path, default=ROOT, help="a checkout whose images are built")
    parser.add_argument("--times", type=int, default=4, help="how often each is tried")
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if not need_root():
        return 1
    checkout, dice = finished(arguments.folder, arguments.images), random.Random(22)
    expected, pairs = results_of(checkout.folder), list[Pair]()
    for _ in range(arguments.times):
        for target in ("build", "figures"):
            pairs.append(second_run(checkout, target, expected, dice))
            print(pairs[-1], flush=True)
    for _ in range(arguments.times):
        pairs.append(beside_record(checkout))
        print(pairs[-1], flush=True)
    held = sum(not pair.wrong for pair in pairs)
    if arguments.out:
        outcome = {"tried": len(pairs), "held": held, "cases": [asdict(pair) for pair in pairs]}
        arguments.out.write_text(json.dumps(outcome, indent=1) + "\n")
    print(f"{len(pairs)} tried, {held} held")
    return int(held != len(pairs))


if __name__ == "__main__":
    sys.exit(main())
