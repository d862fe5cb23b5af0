"""A bundle: one zip with a GPU's recordings, to hand to someone who does not trust whoever made it.

It holds ``bundle.json``, which names the GPU and lists the SHA-256 of every other member, and the files of each family
under ``<family>/``. The same recordings give the same bytes. What is inside is only ever parsed, within limits.
"""

from __future__ import annotations

import io
import json
import re
import stat
import subprocess
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_atomic
from gemmrepro.core.names import RESTORE
from gemmrepro.core.text import hidden_character
from gemmrepro.errors import UserError
from gemmrepro.gpu.device import slug
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.recording import CEILINGS, FILES, GATES, RUN, SANITIZERS, digest

INDEX = "bundle.json"

NAMESPACE = "gemmrepro"
"""The namespace of signatures (ssh-keygen -Y), so that one made for something else does not count."""

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

    Args:
        families: those to bundle; default: all. The ceilings are always in it, since rates are held against them.

    Raises:
        UserError: there is nothing to bundle, or no ceilings.
    """
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
    def slug(self) -> str:
        """The folder name of its recordings."""
        return slug(self.gpu)

    @property
    def families(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self.files})


def read_bundle(path: Path, content: bytes | None = None) -> Bundle:
    """Read a bundle within the limits; nothing is written.

    Args:
        content: the file's, where it was read to check its signature.

    Raises:
        UserError: it is no bundle, is too large, or holds anything but regular files of recordings, each as listed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(_content(path) if content is None else content)) as archive:
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
        if not name.endswith(".parquet"):
            _check_text(path, name, data)
    return Bundle(_gpu(path, index["gpu"], contents), contents)


def _content(path: Path) -> bytes:
    """A bundle's bytes, of which there may be so many."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"the bundle {path} cannot be read ({error.strerror}).") from None
    if len(content) > MOST_BYTES:
        raise _refused(path, f"it is larger than {MOST_BYTES >> 20} MB")
    return content


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"the bundle {path} is refused: {why}; ask its maker for a bundle that `record --bundle` wrote.")


def _check_members(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse links, folders, other paths than a recording's, twins, ciphers, and what would unfold beyond the limit."""
    if len(entries) > MOST_MEMBERS:
        raise _refused(path, f"it has more than {MOST_MEMBERS} members")
    if sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise _refused(path, f"it would unfold into more than {MOST_BYTES >> 20} MB")
    seen: set[str] = set()
    for entry in entries:
        name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
        if name != INDEX and not _MEMBER.fullmatch(name):
            raise _refused(path, f"{name[:80]!r} is no file of a recording")
        if kind not in (0, stat.S_IFREG):
            raise _refused(path, f"{name} is no regular file")
        if name in seen:
            raise _refused(path, f"it has {name} twice")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, f"{name} is encrypted, or packed by something other than deflate")
        seen.add(name)


def _check_text(path: Path, name: str, data: bytes) -> None:
    """Refuse text that is no UTF-8 or holds characters that do not show, and JSON that is none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _refused(path, f"{name} is not UTF-8") from None
    if hidden := hidden_character(text):
        raise _refused(path, f"{name} holds the character {hidden}, which does not show")
    if name.endswith(".json"):
        _json(path, name, data)


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


def _gpu(path: Path, name: str, contents: Mapping[str, bytes]) -> str:
    """The GPU of all its parts. Raises UserError if a part is of another, or a family is unknown or has no ceilings."""
    if slug(name) == "gpu":
        raise _refused(path, f"{name!r} is no GPU's name")
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
        parts = document.values() if file in (GATES, SANITIZERS) else [document]
        gpus = [part.get("gpu") if isinstance(part, dict) else None for part in parts]
        for gpu in gpus:
            found = gpu.get("name") if isinstance(gpu, dict) else gpu
            # An experiment that ran on the CPU has no GPU.
            if found != name and not (found is None and file.startswith(experiments.RECORDINGS)):
                raise _refused(path, f"it is of {name}, and {member} of {found}")
    return name


def sign(path: Path, key: Path) -> Path:
    """Sign a bundle with an SSH key; returns the signature's path. Raises UserError if ssh-keygen cannot."""
    _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(path))
    return path.with_name(f"{path.name}.sig")


def check_signature(path: Path, signers: Path, identity: str) -> bytes:
    """Check the signature beside a bundle against a file of allowed signers (ssh-keygen(1), ALLOWED SIGNERS).

    Returns what was signed: the file may be another one by the time that it is read again.

    Raises:
        UserError: there is no signature, or not one of `identity`.
    """
    signature = path.with_name(f"{path.name}.sig")
    if not signature.is_file():
        raise UserError(f"the bundle {path} has no signature {signature}; ask its maker for it.")
    arguments = ("-f", str(signers), "-I", identity, "-n", NAMESPACE, "-s", str(signature))
    content = _content(path)
    _ssh_keygen("verify", *arguments, given=content)
    return content


def _ssh_keygen(action: str, *arguments: str, given: bytes = b"") -> None:
    command = ["ssh-keygen", "-Y", action, *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=60)
    except FileNotFoundError:
        raise UserError("ssh-keygen is not installed; signatures need OpenSSH 8.2 or later.") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"ssh-keygen -Y {action} did not end; use a key without a passphrase, or an agent.") from None
    if done.returncode:
        words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise UserError(f"ssh-keygen -Y {action} says: {words[-1] if words else 'no reason'}.")
