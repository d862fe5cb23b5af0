"""Finished builds in a folder that outlives a checkout and may be shared by several.

An entry is filed under everything that determines its three files: the build key, the targets, what the build reads of
the record, this package's code and the versions of the tools.

An entry is one file: a line with the SHA-256 of what follows, then the compressed contents. It is checked whenever it
is read, so that a damaged entry is as good as none. Entries appear whole, by renaming, and any number of processes may
read and write at once. When the folder outgrows its limit, the entries that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmrepro.build.compile import Compiled, wanted_archs
from gemmrepro.build.key import build_key
from gemmrepro.build.record import Build
from gemmrepro.build.toolkit import Toolkit, run
from gemmrepro.core import dependencies
from gemmrepro.core.files import json_text
from gemmrepro.core.trees import digest
from gemmrepro.registry import Kernel, keys

_LEVEL = 3
"""zlib's level: a higher one takes longer than it saves."""


@dataclass(frozen=True)
class Cache:
    """Entries in `folder`, by key (hexadecimal digits); `limit` in bytes bounds their sum after `trim`."""

    folder: Path
    limit: int

    def get(self, key: str) -> dict[str, bytes] | None:
        """The files of an entry by name; None if there is none, or if it is damaged: it is then removed."""
        path = self._path(key)
        try:
            digest, _, packed = path.read_bytes().partition(b"\n")
            if digest.decode() != _digest(key, packed):
                raise ValueError("its contents are not those that were written")
            files = _unpacked(packed)
            os.utime(path)  # used now
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError, zlib.error):
            _remove(path)
            return None
        return files

    def put(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keep `files` by their names; where the folder cannot be written, or the disk is full, nothing is kept."""
        packed = _packed(files)
        path = self._path(key)
        name = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, packed).encode() + b"\n" + packed)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except OSError:
            if name:
                _remove(Path(name))

    def trim(self) -> None:
        """Remove the entries that were not used for longest until the rest fits the limit; other files stay."""
        entries = []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            if not self._made_here(path):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process removed it
            entries.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            _remove(path)
            total -= size

    def _made_here(self, path: Path) -> bool:
        """Whether `path` is an entry, or what a process that was killed left of one: the folder may be anyone's."""
        return re.fullmatch(rf"{path.parent.name}[0-9a-f]{{6,}}|\.tmp\w+", path.name) is not None

    def _path(self, key: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{8,}", key):
            raise ValueError(f"'{key}' is no key")
        return self.folder / key[:2] / key


def _remove(path: Path) -> None:
    """Another process may have been faster, or the folder may be read-only."""
    with contextlib.suppress(OSError):
        path.unlink()


def _digest(key: str, packed: bytes) -> str:
    """Of the key too, so that an entry under another's name is none."""
    return hashlib.sha256(key.encode() + b"\n" + packed).hexdigest()


def _packed(files: Mapping[str, bytes]) -> bytes:
    index = json.dumps([[name, len(data)] for name, data in files.items()]).encode()
    return zlib.compress(index + b"\n" + b"".join(files.values()), _LEVEL)


def _unpacked(packed: bytes) -> dict[str, bytes]:
    index, _, rest = zlib.decompress(packed).partition(b"\n")
    files, start = {}, 0
    for name, length in json.loads(index):
        files[str(name)] = rest[start : start + length]
        start += length
    if start != len(rest):
        raise ValueError("its contents are longer than its index says")
    return files


CACHE, CACHE_MB = "GEMMREPRO_BUILD_CACHE", "GEMMREPRO_BUILD_CACHE_MB"
"""Environment variables with the folder of the cache and its limit in MB."""

OF_COMPILER = {
    "cute_dsl": ("gemmrepro.build.cute_dsl", "gemmrepro.build.cute_dsl_trace"),
    "cutile": ("gemmrepro.build.cutile", "gemmrepro.build.cutile_export"),
}
"""Modules that serve one compiler alone: an edit of theirs recompiles only its kernels."""

_TOOLS = ("nvcc", "ptxas", "cuobjdump", "nvdisasm", "g++")

FATBIN, SASS, RECORD = ".fatbin", ".sass", ".json"


def found(key: str, kept: Cache) -> dict[str, bytes] | None:
    """The files of a build by suffix; None if the cache has none."""
    files = kept.get(key)
    return files if files and set(files) == {FATBIN, SASS, RECORD} else None


def files_of(compiled: Compiled) -> dict[str, bytes]:
    """The files of a build by suffix."""
    return {FATBIN: compiled.fatbin, SASS: compiled.sass.encode(), RECORD: written(compiled.record)}


def written(record: Build) -> bytes:
    """A build record as its file holds it."""
    return json_text(record.to_json()).encode()


def entry_key(kernel: Kernel, toolkit: Toolkit, archs: Sequence[str]) -> str:
    """What a build is filed under. Raises UserError if `archs` do not suit the kernel, or if its source is missing."""
    parts = [
        build_key(kernel, toolkit.version),
        toolkit.name,
        wanted_archs(kernel, toolkit, archs),
        keys.compiled(kernel),
        code_of(kernel.code.compiler),
        _versions(),
    ]
    return digest(json.dumps([kernel.id, *parts]))


@cache
def code_of(*compilers: str) -> str:
    """A hash of the build's code for kernels of these compilers.

    The registry's counts by what it says of a kernel (`keys.compiled`), not by itself.
    """
    others = [module for name, modules in OF_COMPILER.items() if name not in compilers for module in modules]
    return dependencies.code_hash("gemmrepro.build.compile", without=frozenset({"gemmrepro.registry", *others}))


@cache
def _versions() -> list[str]:
    """What the tools on PATH say of their versions; nothing for one that is missing."""
    found = [tool for tool in _TOOLS if shutil.which(tool)]
    return [f"{tool}: {run([tool, '--version'], check=False).stdout}" for tool in found]
