"""Alters copies of the committed recordings and fakes bundles of them; each says whether it was refused, and why.

Manifests are rewritten after each alteration: what is refused is refused by what it says and not by its hash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alterations import ALTERATIONS, Alteration, copy
from fakes import FAKES, packed

from gemmrepro import experiments
from gemmrepro.errors import UserError
from gemmrepro.experiments.checked import read_checked
from gemmrepro.host.accept import accept
from gemmrepro.host.bundles import read_bundle
from gemmrepro.measure.checks.manifest import write_manifest
from gemmrepro.measure.checks.regimes import read_take
from gemmrepro.measure.checks.whole import read_whole
from gemmrepro.measure.regimes import takes


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
