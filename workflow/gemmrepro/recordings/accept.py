"""Check a bundle of recordings from someone else, and file it under reports/recorded/<gpu>/.

    python -m gemmrepro accept BUNDLE
    python -m gemmrepro accept BUNDLE --signers allowed_signers --identity someone@example.org

Needs no GPU. Nothing in the bundle is run or trusted: its files are parsed within limits, every row is computed again
from its samples and held against what the GPU can do, and build keys and run keys are looked up in what was built here.
The recordings appear whole, or not at all.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro import experiments
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.experiments.checked import read_checked
from gemmrepro.measure.recording import CEILINGS, GATES, RUN, SUMMARY, write_manifest
from gemmrepro.recordings.bundles import Bundle, check_signature, read_bundle
from gemmrepro.recordings.limits import check_gates
from gemmrepro.recordings.regimes import read_takes
from gemmrepro.recordings.sweeps import read_whole

RECORDINGS = ROOT / "reports/recorded"
"""The project's recordings, by GPU and family."""


def accept(
    bundle: Bundle,
    recordings: Path,
    build: Path,
    replace: bool = False,
    stale: bool = False,
    synthetic: bool = False,
) -> Path:
    """Check a bundle and file its recordings; returns the GPU's folder.

    Args:
        recordings: the folder that holds a folder for each GPU.
        build: the folder of build records.
        replace: whether families that are already recorded on that GPU may be replaced.
        stale: whether rows of other builds may be in it, which will support no claim.
        synthetic: whether rows may have been made for tests (`recording.check_measured`).

    Raises:
        UserError: says why nothing was filed.
    """
    target = recordings / bundle.slug
    if not replace and (there := [name for name in bundle.families if (target / name).is_dir()]):
        raise UserError(f"{', '.join(there)} is recorded in {target} already; give --replace to replace it.")
    recordings.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".accept-", dir=recordings))
    try:
        folder = staged / bundle.slug
        if target.is_dir():
            shutil.copytree(target, folder)
        for family in bundle.families:
            shutil.rmtree(folder / family, ignore_errors=True)
        for name, data in bundle.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        if not (folder / CEILINGS / SUMMARY).is_file():
            raise UserError(f"the bundle has no {CEILINGS}, against which its rates would be checked.")
        for family in bundle.families:
            # The bundle's own list of hashes stands for the manifest, which is no part of it.
            write_manifest(folder / family)
            check_family(family, folder / family, build, stale, synthetic)
        _exchange(folder, target, staged / "before")
    except UserError as error:
        raise UserError(f"nothing was filed: {str(error).replace(f'{staged}/', '')}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target


def check_family(family: str, folder: Path, build: Path, stale: bool, synthetic: bool = False) -> None:
    """Check a family's recording as the default run does, and that its rows are of today's builds.

    Two kinds of rows may be of another build, and are stale: those of a take that a later take supersedes, and those
    of a build that recordings of this project hold rows of (`own_builds`).

    Raises:
        UserError: names the first thing that is wrong.
    """
    if (folder / SUMMARY).is_file() or (folder / RUN).is_file():
        _check_current(family, read_whole(family, folder, build, synthetic).rows, build, stale)
    else:
        check_gates(family, folder / GATES)
    _check_current(family, read_takes(family, folder.parent, build, synthetic)[2], build, stale)
    declared = {experiment.name: experiment for experiment in experiments.declared(family)}
    for path in sorted((folder / experiments.RECORDINGS).glob("*")):
        if path.stem not in declared:
            raise UserError(f"{family} declares no experiment {path.stem}.")
        read_checked(family, declared[path.stem], folder.parent, build, synthetic)


def own_builds(family: str) -> set[tuple[str, ...]]:
    """The builds of which this project's recordings, on any GPU, hold rows of a family: kernel, toolkit, build key."""
    columns = ("kernel", "toolkit", "build_key")
    found: set[tuple[str, ...]] = set()
    for path in RECORDINGS.glob(f"*/{family}/**/{SUMMARY}"):
        with path.open(newline="") as file:
            found |= {tuple(row.get(name) or "" for name in columns) for row in csv.DictReader(file)}
    return found


def _check_current(family: str, rows: Sequence[Mapping[str, str]], build: Path, stale: bool) -> None:
    """Raises UserError if rows are of a foreign build, unless they may be."""
    old = [row for row in rows if row["status"] == "stale"]
    if old and not stale:
        own = own_builds(family)
        old = [row for row in old if (row["kernel"], row["toolkit"], row["build_key"]) not in own]
    if old and not stale:
        raise UserError(
            f"{len(old)} of {len(rows)} rows of {family} are of no binary in {build}, the first "
            f"{old[0]['kernel']} {old[0]['toolkit']} with build key {old[0]['build_key'][:40]}; build what was "
            "measured, or give --stale to file them as stale."
        )


def _exchange(new: Path, target: Path, aside: Path) -> None:
    """Put `new` in the place of `target`, which is there before and after."""
    if target.exists():
        target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise


def main(options: Namespace) -> int:
    """Accept a bundle."""
    if bool(options.signers) != bool(options.identity):
        raise UserError("give --signers and --identity together.")
    content = check_signature(options.bundle, options.signers, options.identity) if options.signers else None
    bundle = read_bundle(options.bundle, content)
    target = accept(bundle, options.recordings, options.build, options.replace, options.stale)
    signed = f"signed by {options.identity}" if options.identity else "no signature checked"
    print(f"accept: {', '.join(bundle.families)} of {bundle.gpu} filed under {target}; {signed}.")
    return 0
