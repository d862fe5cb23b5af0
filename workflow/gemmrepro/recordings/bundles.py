"""A bundle: one zip with a GPU's recordings, to hand to someone who does not trust whoever made it.

It holds ``bundle.json``, which names the GPU and lists the SHA-256 of every other member, and the files of each family
under ``<family>/``. The same recordings give the same bytes. What is inside is only ever parsed, within limits.
"""

import csv
import io
import json
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.names import RESTORE
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.errors import UserError
from gemmrepro.gpu.device import slug
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.recording import (
    CEILINGS,
    FILES,
    GATES,
    RUN,
    SANITIZERS,
    SUMMARY,
    digest,
    read_sanitizers,
    write_manifest,
)
from gemmrepro.recordings.bring import read_checked
from gemmrepro.recordings.limits import check_gates
from gemmrepro.recordings.regimes import read_takes
from gemmrepro.recordings.sweeps import read_whole

INDEX = "bundle.json"

MOST_BYTES, MOST_MEMBERS = 256 << 20, 2000
"""Limits on a bundle: of its file and of all its members unfolded, and their number. All H200 recordings take 12 MB."""

_FILE = "|".join(map(re.escape, (*FILES, GATES, SANITIZERS)))
_TAKE = "|".join(map(re.escape, regime_files.FILES))
_MEMBER = re.compile(
    rf"[a-z0-9_]{{1,64}}/({_FILE}|{experiments.RECORDINGS}/[a-z0-9_]{{1,64}}\.(csv|json)"
    rf"|{regime_files.FOLDER}/[0-9]{{1,3}}/({_TAKE}))"
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


def members(folder: Path) -> list[str]:
    """The files of a GPU's recordings that a bundle holds, as paths in that folder."""
    paths = (path.relative_to(folder).as_posix() for path in folder.glob("*/**/*") if path.is_file())
    return sorted(name for name in paths if _MEMBER.fullmatch(name))


def write_bundle(folder: Path, out: Path, families: Sequence[str] | None = None) -> None:
    """Write a bundle of the recordings in `folder`, those of one GPU.
    `families`: those to bundle; default: all. The ceilings are always in it, since rates are held against them."""
    wanted = None if families is None else {*families, CEILINGS}
    names = [name for name in members(folder) if wanted is None or name.split("/")[0] in wanted]
    if f"{CEILINGS}/{RUN}" not in names:
        raise UserError(f"{folder} has no recorded ceilings, against which rates are checked; record {CEILINGS} first.")
    contents = {name: (folder / name).read_bytes() for name in names}
    gpu = read_json(folder / CEILINGS / RUN, "the recording", RESTORE)["gpu"]["name"]
    index = {"version": 1, "gpu": gpu, "files": {name: digest(data) for name, data in contents.items()}}
    contents[INDEX] = (json.dumps(index, indent=2, sort_keys=True) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, contents[name])
    write_atomic(out, buffer.getvalue())


@dataclass(frozen=True)
class Bundle:
    """A bundle's content: the GPU's name, and the files by path, whose hashes are those listed."""

    gpu: str
    files: Mapping[str, bytes]

    @property
    def families(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self.files})


def read_bundle(path: Path) -> Bundle:
    """Read a bundle within the limits; nothing is written."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"the bundle {path} cannot be read ({error.strerror}).") from None
    if len(content) > MOST_BYTES:
        raise _refused(path, f"it is larger than {MOST_BYTES >> 20} MB")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_members(path, archive.infolist())
            contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise _refused(path, f"it is no whole zip ({error})") from None
    if INDEX not in contents:
        raise _refused(path, f"it has no {INDEX}")
    index = _json(path, INDEX, contents.pop(INDEX))
    try:
        schemas.check(index, "bundle.schema.yaml", INDEX, "")
    except UserError as error:
        raise _refused(path, str(error).rstrip(" .;")) from None
    for name in sorted(index["files"].keys() ^ contents.keys()):
        raise _refused(path, f"{name} is {'not listed' if name in contents else 'listed and missing'}")
    for name, data in contents.items():
        if digest(data) != index["files"][name]:
            raise _refused(path, f"{name} is not the file that {INDEX} lists")
    _check_gpu(path, index["gpu"], contents)
    return Bundle(index["gpu"], contents)


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"the bundle {path} is refused: {why}; ask its maker for a bundle that `record --bundle` wrote.")


def _check_members(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse links, folders, other paths than a recording's, twins, ciphers, and what would unfold beyond the limit."""
    if len(entries) > MOST_MEMBERS:
        raise _refused(path, f"it has more than {MOST_MEMBERS} members")
    if sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise _refused(path, f"it would unfold into more than {MOST_BYTES >> 20} MB")
    for name, times in Counter(entry.filename for entry in entries).items():
        if name != INDEX and not _MEMBER.fullmatch(name):
            raise _refused(path, f"{name[:80]!r} is no file of a recording")
        if times > 1:
            raise _refused(path, f"it has {name} twice")
    for entry in entries:
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise _refused(path, f"{entry.filename} is no regular file")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, f"{entry.filename} is encrypted, or packed by something other than deflate")


def _json(path: Path, name: str, data: bytes) -> Any:
    """A member as JSON: without NaN, without a key twice, not nested too deeply."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a key occurs twice")
        return dict(pairs)

    def none(constant: str) -> None:
        raise ValueError(f"{constant} is no number")

    try:
        return json.loads(data, object_pairs_hook=once, parse_constant=none)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"{name} is not JSON ({str(error)[:100]})") from None


def _check_gpu(path: Path, gpu: str, contents: Mapping[str, bytes]) -> None:
    """Raises UserError if a part is of another GPU, or of an unknown family."""
    if slug(gpu) == "gpu":
        raise _refused(path, f"{gpu!r} is no GPU's name")
    known = registry.family_names()
    for member, data in contents.items():
        family, _, file = member.partition("/")
        if family not in known:
            raise _refused(path, f"there is no family {family}")
        if not file.endswith(".json"):
            continue
        document = _json(path, member, data)
        if not isinstance(document, dict):
            raise _refused(path, f"{member} holds no object")
        for part in document.values() if file in (GATES, SANITIZERS) else [document]:
            found = part.get("gpu") if isinstance(part, dict) else None
            found = found.get("name") if isinstance(found, dict) else found
            # An experiment that ran on the CPU has no GPU.
            if found != gpu and not (found is None and file.startswith(experiments.RECORDINGS)):
                raise _refused(path, f"it is of {gpu}, and {member} of {found}")


def accept(bundle: Bundle, recordings: Path, build: Path, replace: bool = False) -> Path:
    """Check a bundle and file its recordings; returns the GPU's folder.
    `recordings`: the folder that holds a folder for each GPU; `replace`: whether families that are already recorded on
    that GPU may be replaced."""
    target = recordings / slug(bundle.gpu)
    if not replace and (there := [name for name in bundle.families if (target / name).is_dir()]):
        raise UserError(f"{', '.join(there)} is recorded in {target} already; give --replace to replace it.")
    recordings.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".accept-", dir=recordings))
    folder, before = staged / "new", staged / "before"
    try:
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
            check_family(family, folder / family, build)
        if target.exists():
            target.rename(before)
        try:
            folder.rename(target)
        except OSError:
            if before.exists():
                before.rename(target)
            raise
    except UserError as error:
        raise UserError(f"nothing was filed: {str(error).replace(f'{staged}/', '')}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target


def check_family(family: str, folder: Path, build: Path) -> None:
    """Check a family's recording as the default run does, and that its rows are of no foreign builds."""
    rows: list[dict[str, str]] = []
    if (folder / SUMMARY).is_file() or (folder / RUN).is_file():
        rows += read_whole(family, folder, build).rows
    else:
        check_gates(family, folder / GATES)
    read_sanitizers(folder / SANITIZERS)
    rows += read_takes(family, folder.parent, build)[2]
    _check_current(family, rows, build)
    declared = {experiment.name: experiment for experiment in experiments.declared(family)}
    for path in sorted((folder / experiments.RECORDINGS).glob("*")):
        if path.stem not in declared:
            raise UserError(f"{family} declares no experiment {path.stem}.")
        read_checked(family, declared[path.stem], folder.parent, build)


def _check_current(family: str, rows: Sequence[Mapping[str, str]], build: Path) -> None:
    """Raises UserError if rows are of foreign builds: neither today's nor one that this project's recordings hold."""
    binary = ("kernel", "toolkit", "build_key")
    old = [row for row in rows if row["status"] == "stale"]
    own: set[tuple[str, ...]] = set()
    for path in RECORDINGS.glob(f"*/{family}/**/{SUMMARY}") if old else ():
        with path.open(newline="") as file:
            own |= {tuple(row.get(name) or "" for name in binary) for row in csv.DictReader(file)}
    if foreign := [row for row in old if tuple(row[name] for name in binary) not in own]:
        kernel, toolkit, key = (foreign[0][name] for name in binary)
        raise UserError(
            f"{len(foreign)} of {len(rows)} rows of {family} are of no binary in {build}, the first {kernel} {toolkit} "
            f"with build key {key[:40]}; build what was measured."
        )


def accept_step(options: Namespace) -> int:
    bundle = read_bundle(options.bundle)
    target = accept(bundle, options.recordings, options.build, options.replace)
    print(f"accept: {', '.join(bundle.families)} of {bundle.gpu} filed under {target}.")
    return 0


AGAIN = "run the workflow again"


def collect(results: Path, out: Path) -> Path:
    """Copy what was measured live from `results` into `out`, laid out as recordings; returns the GPU's folder."""
    gpus: set[str] = set()
    for family in registry.family_names():
        folder = out / "new" / family
        parts: list[tuple[Path, Sequence[str], str]] = [
            (results / "measure" / family / RUN, FILES, ""),
            (results / "regimes" / family / regime_files.RUN, regime_files.FILES, f"{regime_files.FOLDER}/1"),
        ]
        for run in sorted((results / "experiments" / family).glob("*.json")):
            parts.append((run, (f"{run.stem}.csv", run.name), experiments.RECORDINGS))
        for run, names, place in parts:
            told = read_json(run, "the result", AGAIN) if run.is_file() else {}
            if told.get("source") != "live" or not told.get("gpu"):
                continue
            gpus.add(str(told["gpu"]["name"]))
            (folder / place).mkdir(parents=True, exist_ok=True)
            for name in names:
                if not (run.parent / name).is_file():
                    raise UserError(f"{run.parent / name} is missing; {AGAIN}, which makes it.")
                shutil.copyfile(run.parent / name, folder / place / name)
        verdicts = sorted((results / "gates" / "numeric" / family).glob("*.json"))
        if folder.is_dir() and verdicts:
            write_json(folder / GATES, {path.stem: read_json(path, "the verdict", AGAIN) for path in verdicts})
        if folder.is_dir():
            write_manifest(folder)
    if not gpus:
        raise UserError(
            f"{results} holds nothing that was measured here; run the workflow on a machine with a GPU, or name the"
            " folder of such a run with --results."
        )
    if len(gpus) > 1:
        raise UserError(
            f"{results} was measured on {' and '.join(sorted(gpus))}; a bundle is of one kind of GPU: {AGAIN} on one."
        )
    return (out / "new").rename(out / slug(gpus.pop()))


def bundle_step(options: Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        recordings = collect(options.results, Path(folder))
        write_bundle(recordings, options.bundle)
        families = ", ".join(sorted(path.name for path in recordings.iterdir()))
    print(f"bundle: {families} on {recordings.name} as {options.bundle}.")
    return 0
