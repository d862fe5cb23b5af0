"""A folder of results by what they are made of, which outlives a checkout and may be shared by several.

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
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
