"""Alters copies of the committed recordings, fakes bundles of them, and counts what is refused.

    PYTHONPATH=workflow python tests/campaigns/tampering.py --out tests/campaigns/recorded/tampering.json
    PYTHONPATH=workflow python tests/campaigns/tampering.py --families ladder --markdown

The manifests are rewritten after each alteration, so what is refused is refused by what it says and not by its hash.
Without --build, rows count as current whose build keys are any. `docs/reliability.md` has the outcome.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "workflow")]

from campaigns.alterations import ALTERATIONS, Alteration, copy  # noqa: E402
from campaigns.fakes import FAKES, packed  # noqa: E402

from gemmrepro import experiments  # noqa: E402
from gemmrepro.core.files import write_json  # noqa: E402
from gemmrepro.errors import UserError  # noqa: E402
from gemmrepro.experiments.checked import read_checked  # noqa: E402
from gemmrepro.host.accept import accept  # noqa: E402
from gemmrepro.host.bundles import read_bundle, write_bundle  # noqa: E402
from gemmrepro.measure.checks.manifest import write_manifest  # noqa: E402
from gemmrepro.measure.checks.regimes import read_take  # noqa: E402
from gemmrepro.measure.checks.whole import read_summary, read_whole  # noqa: E402
from gemmrepro.measure.regimes.places import takes  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"


@dataclass(frozen=True)
class Tried:
    """One altered recording or fake bundle: what should happen, and the message if it was refused."""

    subject: str
    name: str
    expected: str
    why: str
    message: str

    @property
    def refused(self) -> bool:
        return bool(self.message)

    @property
    def as_expected(self) -> bool:
        return self.refused == (self.expected == "refused")

    @property
    def outcome(self) -> str:
        return "refused" if self.refused else self.expected if self.as_expected else "believed"

    @property
    def reason(self) -> str:
        """What the refusal complains of, or why there is none."""
        return self.message.partition(" is corrupt: ")[2].partition("; restore")[0] or self.message or self.why


def placeless(message: str, scratch: str, build: Path) -> str:
    """A message without the places of this machine."""
    return message.replace(f"{scratch}/", "").replace(str(build), "results/build")


def read_all(family: Path, build: Path) -> None:
    """Read a family's recording as the default run does: sweep, verdicts, takes of the regimes, experiments."""
    read_whole(family.name, family, build)
    for take in takes(family.parent, family.name):
        read_take(family.name, take, build)
    for experiment in experiments.declared(family.name):
        read_checked(family.name, experiment, family.parent, build)


def alter(family: Path, alteration: Alteration, build: Path) -> Tried:
    """Alter a copy of the recording in `family`, and read it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = copy(family, Path(scratch) / "gpu")
        alteration.edit(folder)
        write_manifest(folder)
        try:
            read_all(folder, build)
            message = ""
        except UserError as error:
            message = placeless(str(error), scratch, build)
    outcome = "believed" if family.name in alteration.believed_in else alteration.outcome
    return Tried(family.name, alteration.name, outcome, alteration.why, message)


def possible(family: Path, alterations: Sequence[Alteration] = ALTERATIONS) -> Iterator[Alteration]:
    """The alterations of files that a family's recording has, with something in them."""
    for alteration in alterations:
        path = family / alteration.needs
        if any(path.glob("*.csv")) if path.is_dir() else path.is_file() and path.read_text().count("\n") > 1:
            yield alteration


def fake(bundle: Path, build: Path) -> list[Tried]:
    """Accept every fake of a genuine bundle; where it leaves something behind, it counts as not refused."""
    import zipfile

    tried = []
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert packed(members), "the genuine bundle has members"
    for each in FAKES:
        with tempfile.TemporaryDirectory() as scratch:
            path, out = Path(scratch) / "fake.zip", Path(scratch) / "recorded"
            path.write_bytes(each.make(dict(members)))
            try:
                accept(read_bundle(path), out, build)
                message = ""
            except UserError as error:
                message = placeless(str(error), scratch, build)
            if left := [p for p in Path(scratch).rglob("*") if p.is_file() and p != path]:
                message = "" if message else f"left {left[0]}"
        tried.append(Tried("bundle", each.name, "refused", "", message))
    return tried


def report(tried: Sequence[Tried], markdown: bool) -> int:
    """Print what was tried; returns how many did not end as expected."""
    for one in tried:
        if markdown:
            print(f"| {one.subject} | {one.name} | {one.outcome} | {one.reason[:160].replace('|', '/')} |")
        elif not one.as_expected:
            print(f"{one.subject}: {one.name}: expected {one.expected}: {one.reason or 'no complaint'}")
    for subject, counted in tally(tried).items():
        print(f"{subject}: {', '.join(f'{number} {kind}' for kind, number in counted.items())}")
    return sum(not one.as_expected for one in tried)


def tally(tried: Sequence[Tried]) -> dict[str, dict[str, int]]:
    """How many were tried, and how many had each outcome, by subject."""
    counted: dict[str, dict[str, int]] = {}
    for one in tried:
        of = counted.setdefault(one.subject, dict.fromkeys(("tried", "refused", "harmless", "believed"), 0))
        of["tried"] += 1
        of[one.outcome] += 1
    return counted


def document(tried: Sequence[Tried], rows: dict[str, int]) -> dict[str, Any]:
    """The outcome for tests/campaigns/recorded: counts and cases by subject, with the rows of recordings."""
    cases: dict[str, dict[str, dict[str, str]]] = {}
    for one in tried:
        cases.setdefault(one.subject, {})[one.name] = {"outcome": one.outcome, "said": one.reason[:300]}
    counts = {subject: {**counted, "rows": rows.get(subject, 0)} for subject, counted in tally(tried).items()}
    return {"counts": counts, "cases": cases}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--families", default="ladder,crt,hopper", help="whose recordings to alter, comma-separated")
    parser.add_argument("--build", type=Path, default=ROOT / "results/build", help="today's build records")
    parser.add_argument("--markdown", action="store_true", help="print a table of all that was tried")
    parser.add_argument("--out", type=Path, help="write what was tried, and what came of it, to this file")
    options = parser.parse_args()
    tried: list[Tried] = []
    rows = {name: len(read_summary(RECORDED / name)) for name in options.families.split(",")}
    for family in rows:
        read_all(RECORDED / family, options.build)
        tried += [alter(RECORDED / family, each, options.build) for each in possible(RECORDED / family)]
    with tempfile.TemporaryDirectory() as scratch:
        bundle = Path(scratch) / "genuine.zip"
        write_bundle(RECORDED, bundle, ["ozaki"])
        accept(read_bundle(bundle), Path(scratch) / "recorded", options.build)
        tried += fake(bundle, options.build)
    if options.out:
        write_json(options.out, document(tried, rows))
    return 1 if report(tried, options.markdown) else 0


if __name__ == "__main__":
    sys.exit(main())
