"""Alters copies of the committed recordings, fakes bundles of them, and counts what is refused.

    PYTHONPATH=workflow python tests/campaigns/tampering.py --build results/build
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "workflow")]

from campaigns.alterations import ALTERATIONS, Alteration, copy  # noqa: E402
from campaigns.fakes import FAKES, packed  # noqa: E402

from gemmrepro import experiments  # noqa: E402
from gemmrepro.errors import UserError  # noqa: E402
from gemmrepro.experiments.checked import read_checked  # noqa: E402
from gemmrepro.host.accept import accept  # noqa: E402
from gemmrepro.host.bundles import read_bundle, write_bundle  # noqa: E402
from gemmrepro.measure.checks.manifest import write_manifest  # noqa: E402
from gemmrepro.measure.checks.whole import read_whole  # noqa: E402

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


def read_all(family: Path, build: Path) -> None:
    """Read a family's recording as the default run does: the sweep, the verdicts and the experiments."""
    read_whole(family.name, family, build)
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
            message = str(error).replace(f"{scratch}/", "")
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
                message = str(error).replace(f"{scratch}/", "")
            if left := [p for p in Path(scratch).rglob("*") if p.is_file() and p != path]:
                message = "" if message else f"left {left[0]}"
        tried.append(Tried("bundle", each.name, "refused", "", message))
    return tried


def report(tried: Sequence[Tried], markdown: bool) -> int:
    """Print what was tried; returns how many did not end as expected."""
    for one in tried:
        outcome = "refused" if one.refused else one.expected if one.as_expected else "BELIEVED"
        reason = one.message.partition(" is corrupt: ")[2].partition("; restore")[0] or one.message or one.why
        if markdown:
            print(f"| {one.subject} | {one.name} | {outcome} | {reason[:160].replace('|', '/')} |")
        elif not one.as_expected:
            print(f"{one.subject}: {one.name}: expected {one.expected}: {reason or 'no complaint'}")
    for subject in dict.fromkeys(one.subject for one in tried):
        own = [one for one in tried if one.subject == subject]
        kinds = {kind: sum(one.expected == kind for one in own if not one.refused) for kind in ("harmless", "believed")}
        others = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        print(f"{subject}: {len(own)} tried, {sum(one.refused for one in own)} refused, {others}")
    return sum(not one.as_expected for one in tried)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--families", default="ladder,crt,hopper", help="whose recordings to alter, comma-separated")
    parser.add_argument("--build", type=Path, default=ROOT / "results/build", help="today's build records")
    parser.add_argument("--markdown", action="store_true", help="print a table of all that was tried")
    options = parser.parse_args()
    tried = []
    for family in options.families.split(","):
        read_all(RECORDED / family, options.build)
        tried += [alter(RECORDED / family, each, options.build) for each in possible(RECORDED / family)]
    with tempfile.TemporaryDirectory() as scratch:
        bundle = Path(scratch) / "genuine.zip"
        write_bundle(RECORDED, bundle, ["ozaki"])
        accept(read_bundle(bundle), Path(scratch) / "recorded", options.build)
        tried += fake(bundle, options.build)
    return 1 if report(tried, options.markdown) else 0


if __name__ == "__main__":
    sys.exit(main())
