"""Pack what a live run measured into one bundle: to file it here (`accept`), or to send it.

    python -m gemmrepro bundle mine.zip
    python -m gemmrepro bundle mine.zip --results results --sign ~/.ssh/id_ed25519

The run is the main command's on a machine with a GPU. What it took from recordings is left out.
"""

from __future__ import annotations

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from gemmrepro import experiments, registry
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError
from gemmrepro.gpu.device import slug
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.recording import FILES, GATES, RUN, write_manifest
from gemmrepro.recordings.bundles import sign, write_bundle

AGAIN = "run the workflow again"


def collect(results: Path, out: Path) -> Path:
    """Copy what was measured live from `results` into `out`, laid out as recordings; returns the GPU's folder.

    Raises:
        UserError: nothing was measured, or not on one kind of GPU.
    """
    folders = {name: out / name for name in registry.family_names() if _collect_family(results, name, out / name)}
    if not folders:
        raise UserError(
            f"{results} holds nothing that was measured here; run the workflow on a machine with a GPU, or name the"
            " folder of such a run with --results."
        )
    gpus = {_gpu(path) for folder in folders.values() for path in folder.rglob("*.json") if path.name != GATES}
    if len(gpus) > 1:
        raise UserError(
            f"{results} was measured on {' and '.join(sorted(gpus))}; a bundle is of one kind of GPU: {AGAIN} on one."
        )
    target = out / slug(gpus.pop())
    target.mkdir()
    for name, folder in folders.items():
        write_manifest(folder)
        folder.rename(target / name)
    return target


def _collect_family(results: Path, family: str, out: Path) -> bool:
    """Copy a family's rows, regimes, experiments and verdicts; returns whether there are any from a GPU."""
    rows, regimes = results / "measure" / family, results / "regimes" / family
    if _is_live(rows / RUN):
        _copy([rows / name for name in FILES], out)
    if _is_live(regimes / regime_files.RUN):
        _copy([regimes / name for name in regime_files.FILES], out / regime_files.FOLDER / "1")
    for run in sorted((results / "experiments" / family).glob("*.json")):
        if _is_live(run) and _gpu(run):
            _copy([run.with_suffix(".csv"), run], out / experiments.RECORDINGS)
    verdicts = {
        path.stem: read_json(path, "the verdict", AGAIN)
        for path in sorted((results / "gates" / "numeric" / family).glob("*.json"))
    }
    if out.is_dir() and verdicts:
        write_json(out / GATES, verdicts)
    return out.is_dir()


def _is_live(run: Path) -> bool:
    """Whether the rows beside a description were measured by this run."""
    return run.is_file() and read_json(run, "the result", AGAIN).get("source") == "live"


def _gpu(run: Path) -> str:
    """The name of the GPU that a description gives; empty if none took part."""
    return str((read_json(run, "the result", AGAIN).get("gpu") or {}).get("name", ""))


def _copy(files: Sequence[Path], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for path in files:
        if not path.is_file():
            raise UserError(f"{path} is missing; {AGAIN}, which makes it.")
        shutil.copyfile(path, out / path.name)


def main(options: Namespace) -> int:
    """Bundle a finished run."""
    with tempfile.TemporaryDirectory() as folder:
        recordings = collect(options.results, Path(folder))
        write_bundle(recordings, options.bundle)
        families = ", ".join(sorted(path.name for path in recordings.iterdir()))
    signed = f", signed by {sign(options.bundle, options.sign)}" if options.sign else ""
    print(f"bundle: {families} on {recordings.name} as {options.bundle}{signed}.")
    return 0
