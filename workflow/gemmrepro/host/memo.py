"""Hashes that a start of Snakemake needs, remembered while nothing that they are made of changes.

They take seconds to compute from the syntax trees of the library and the records of the registry, and every start needs
all of them. They are filed under the content of everything that they can depend on.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from gemmrepro.core import paths
from gemmrepro.core.cache import Cache
from gemmrepro.core.dependencies import PACKAGE

FOLDERS = (PACKAGE, paths.KERNELS_DIR)
"""What the hashes are made of."""

LIMIT = 2_000_000
"""Bytes to keep; one state of the checkout takes some ten thousand."""


class Memo:
    """Values by name, for one state of the checkout; `save` keeps those that were new."""

    def __init__(self, folder: Path, *settings: str) -> None:
        """Read what is remembered in `folder`; `settings` are what the values depend on besides the files."""
        self._cache = Cache(folder, LIMIT)
        self._key = state(FOLDERS, settings)
        self._values = self._cache.get(self._key) or {}
        self._known = len(self._values)

    def __call__(self, name: str, make: Callable[[], str]) -> str:
        """The value of `name`: remembered, or made."""
        if name not in self._values:
            self._values[name] = make().encode()
        return self._values[name].decode()

    def save(self) -> None:
        if len(self._values) > self._known:
            self._cache.put(self._key, self._values)
            self._cache.trim()


def state(folders: Iterable[Path], settings: Iterable[str]) -> str:
    """A hash of the content of every file below some folders, of `settings` and of Python's version."""
    digest = hashlib.sha256(repr([sys.version, *settings]).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".md"):
                data = path.read_bytes()
                digest.update(f"{path.relative_to(folder)} {len(data)}\n".encode() + data)
    return digest.hexdigest()
