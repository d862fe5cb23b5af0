"""Finished builds in a folder that outlives a checkout and may be shared by several.

An entry is filed under everything that determines its three files: the build key, the targets, what the build reads of
the record, this package's code and the versions of the tools. It is a zip with its key as comment, whose checksums are
compared whenever it is read: a damaged entry is as good as none. Any number of processes may read and write at once.
"""

import contextlib
import io
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmrepro.build.compile import wanted_archs
from gemmrepro.build.key import build_key
from gemmrepro.build.toolkit import Toolkit, run
from gemmrepro.core import dependencies
from gemmrepro.core.files import write_atomic
from gemmrepro.core.trees import digest
from gemmrepro.registry import Kernel, keys


@dataclass(frozen=True)
class Cache:
    """Entries in `folder`, by key (hexadecimal digits); `limit` in bytes bounds their sum after `trim`."""

    folder: Path
    limit: int

    def get(self, key: str) -> dict[str, bytes] | None:
        """The files of an entry by name; None if there is none, or if it is damaged: it is then removed."""
        path = self._path(key)
        try:
            with zipfile.ZipFile(path) as archive:
                if archive.comment.decode() != key:
                    raise ValueError("it is another's entry")
                files = {name: archive.read(name) for name in archive.namelist()}
            os.utime(path)  # used now
        except FileNotFoundError:
            return None
        except (ValueError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
            _remove(path)
            return None
        return files

    def put(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keep `files` by their names; where the folder cannot be written, or the disk is full, nothing is kept."""
        path, packed = self._path(key), io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
            archive.comment = key.encode()
            for name, data in files.items():
                archive.writestr(name, data)
        with contextlib.suppress(OSError):
            write_atomic(path, packed.getvalue())

    def trim(self) -> None:
        """Remove the entries that were not used for longest until the rest fits the limit; other files stay."""
        entries = []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            # What is none, nor what a process that was killed left of one, may be anyone's.
            if re.fullmatch(rf"(\.{path.parent.name}|{path.parent.name})[0-9a-f]{{6,}}(\.\w+)?", path.name):
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    entries.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            _remove(path)
            total -= size

    def _path(self, key: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{8,}", key):
            raise ValueError(f"'{key}' is no key")
        return self.folder / key[:2] / key


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or the folder is read-only
        path.unlink()


CACHE, CACHE_MB = "GEMMREPRO_BUILD_CACHE", "GEMMREPRO_BUILD_CACHE_MB"
"""Environment variables with the folder of the cache and its limit in MB."""

OF_COMPILER = {
    "cute_dsl": ("gemmrepro.build.cute_dsl", "gemmrepro.build.cute_dsl_trace"),
    "cutile": ("gemmrepro.build.cutile", "gemmrepro.build.cutile_export"),
}
"""Modules that serve one compiler alone: an edit of theirs recompiles only its kernels."""


def entry_key(kernel: Kernel, toolkit: Toolkit, archs: Sequence[str]) -> str:
    """The key of a build. Raises UserError if `archs` do not suit the kernel, or if its source is missing."""
    parts = [
        build_key(kernel, toolkit.version),
        toolkit.name,
        wanted_archs(kernel, toolkit, archs),
        keys.compiled(kernel),
        code_of(kernel.code.compiler),
        _versions(),
    ]
    return digest(json.dumps([kernel.id, *parts]))


def code_of(*compilers: str) -> str:
    """A hash of the code that builds kernels of these compilers; the registry's counts by `keys.compiled`."""
    others = [module for name, modules in OF_COMPILER.items() if name not in compilers for module in modules]
    return dependencies.code_hash("gemmrepro.build.compile", without=frozenset({"gemmrepro.registry", *others}))


@cache
def _versions() -> list[str]:
    """Versions of the tools on PATH, in their own words; nothing for one that is missing."""
    tools = filter(shutil.which, ("nvcc", "ptxas", "cuobjdump", "nvdisasm", "g++"))
    return [f"{tool}: {run([tool, '--version'], check=False).stdout}" for tool in tools]
