"""A hash of committed files by content, for rules: the time of a file may be older than its last edit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gemmrepro.core.trees import source_hash

COMMENTED = (".Dockerfile", ".txt")
"""Endings of files whose lines after a # are comments."""


def contents(paths: Iterable[str | Path], *, whole: bool = False) -> str:
    """16 hex digits that change with what programs read of some files, or with their names.

    Args:
        whole: count comments in code, which the report shows, too.

    Raises:
        OSError: a file cannot be read.
    """
    hashes = sorted((Path(path).name, _hash(Path(path), whole)) for path in paths)
    return hashlib.sha256(repr(hashes).encode()).hexdigest()[:16]


@cache
def _hash(path: Path, whole: bool) -> str:
    if path.suffix in (".cu", ".cuh", ".py") and not whole:
        return source_hash(path)
    data = path.read_bytes()
    if path.suffix in COMMENTED:
        data = b"\n".join(line for line in data.splitlines() if not line.lstrip().startswith(b"#"))
    return hashlib.sha256(data).hexdigest()
