"""Outputs as a power cut leaves them: is each of them found and named by the next run, and made again?

    PYTHONPATH=workflow envs/run python tests/campaigns/power_cut.py --folder /tmp/killed --out power-cut.json

Needs root. After a finished run in a scratch checkout (`killed.py` leaves one) one output of every kind is emptied, cut
in half, or filled with zeros, with its time as it was, as if the machine had been restarted since; then edited by hand.
The run after that must name each and end with the results of before. docs/reliability.md has the outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from damages import emptied, halved, zeros
from runs import ROOT, Checkout, finished, need_root, record_of, results_of

from gemmrepro.host.finished_outputs import NAME

KINDS = (
    ("image", "resources/images/report.sif"),
    ("lock of an image", "resources/images/report.lock.json"),
    ("build record", "results/build/cuda13/memory.copy_scalar_float.json"),
    ("binary", "results/build/cuda12/ceilings.ffma.fatbin"),
    ("machine code", "results/build/cuda13/memory.copy_once_half.sass"),
    ("gate", "results/gates/memory.copy_once_half.json"),
    ("rows", "results/measure/memory/summary.csv"),
    ("samples", "results/measure/memory/samples.parquet"),
    ("description of a run", "results/measure/ceilings/run.json"),
    ("experiment", "results/experiments/memory/*.csv"),
    ("verdicts", "results/verdicts.json"),
    ("figure", "results/figures/paper/*.svg"),
    ("data of a figure", "results/figures/memory/*.csv"),
    ("paper", "reports/index.html"),
    ("page of a kernel", "reports/kernels/*.html"),
    ("configuration", "results/config.json"),
)
"""What a run makes: a kind, and the file of that kind to damage."""


def edited(data: bytes) -> bytes:
    """A digit in the middle becomes another; or any byte, where there is none."""
    middle = next((at for at in range(len(data) // 2, len(data)) if data[at : at + 1].isdigit()), len(data) // 2)
    return data[:middle] + (b"1" if data[middle : middle + 1] != b"1" else b"2") + data[middle + 1 :]


@dataclass(frozen=True)
class Damage:
    """A way of damaging files.

    Attributes:
        keeps_time: the files keep their times, and the machine seems to have been restarted since.
    """

    name: str
    change: Callable[[bytes], bytes]
    keeps_time: bool = False


DAMAGES = (
    Damage("emptied", emptied),
    Damage("cut in half", halved),
    Damage("filled with zeros", zeros, keeps_time=True),
    Damage("edited", edited),
)


@dataclass
class Case:
    """A damaged file: what the next run said of it, and whether it is as before."""

    damage: str
    kind: str
    path: str
    said: str
    restored: bool

    @property
    def held(self) -> bool:
        return bool(self.said) and self.restored


def spoil(path: Path, damage: Damage) -> None:
    status, data = path.stat(), path.read_bytes()
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(damage.change(data))
    part.chmod(status.st_mode)
    part.replace(path)  # a file that hard links share stays as it is
    if damage.keeps_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def restart(checkout: Checkout) -> None:
    """Have the journal say that its outputs were noted before the machine was last started."""
    journal = checkout.folder / ".snakemake" / NAME
    lines = journal.read_text().splitlines(keepends=True)
    others = [line for line in lines if "boot" not in json.loads(line)]
    journal.write_text('{"boot": "another"}\n' + "".join(others))


def sentence(said: list[str], path: str) -> str:
    """What a run said of a file."""
    return next((line for line in said if path in line), "")


def damaged(checkout: Checkout, damage: Damage, kinds: dict[str, str], before: dict[str, str]) -> Iterator[Case]:
    """Damage one file of each kind, run, and look at each."""
    for path in kinds.values():
        spoil(checkout.folder / path, damage)
    record = checkout.folder / record_of("results/figures/memory/" + _figure(checkout))
    if damage.name != "edited":  # an edited record of Snakemake's is as good as any other
        spoil(record, damage)
        kinds = kinds | {"record of Snakemake's": "results/figures/memory/" + _figure(checkout)}
    if damage.keeps_time:
        restart(checkout)
    ended = checkout.run()
    now = results_of(checkout.folder)
    assert ended.code == 0, ended.tail
    for kind, path in kinds.items():
        restored = now[path] == before[path] if path in before else (checkout.folder / path).stat().st_size > 0
        yield Case(damage.name, kind, path, sentence(ended.lines, path), restored)


def _figure(checkout: Checkout) -> str:
    return min(path.name for path in (checkout.folder / "results/figures/memory").glob("*.svg"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="a scratch checkout with a finished run")
    parser.add_argument("--images", type=Path, default=ROOT, help="a checkout whose images are built")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--without", default="", help="kinds to leave out, separated by commas")
    chosen.add_argument("--only", default="", help="kinds to damage alone, separated by commas")
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if not need_root():
        return 1
    checkout = finished(arguments.folder, arguments.images)
    before = results_of(checkout.folder)
    only, left_out = arguments.only.split(","), arguments.without.split(",")
    kinds = {
        kind: min(path.relative_to(checkout.folder).as_posix() for path in checkout.folder.glob(pattern))
        for kind, pattern in KINDS
        if kind not in left_out and (kind in only or not arguments.only)
    }
    cases = []
    for damage in DAMAGES:
        for case in damaged(checkout, damage, kinds, before):
            cases.append(case)
            print(f"{case.damage}: {case.kind}: {'held' if case.held else 'NOT HELD'}: {case.said}", flush=True)
    now = results_of(checkout.folder)
    other = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    held = sum(case.held for case in cases)
    outcome = {"tried": len(cases), "held": held, "results": len(before), "results_that_differ": other}
    if arguments.out:
        arguments.out.write_text(json.dumps(outcome | {"cases": [asdict(case) for case in cases]}, indent=1) + "\n")
    print(f"{len(cases)} tried, {held} held; {len(other)} of {len(before)} results differ: {other[:9]}")
    return int(held != len(cases) or bool(other))


if __name__ == "__main__":
    sys.exit(main())
