"""Whether a disk that a run writes to is full: one line, where Snakemake and the tools would each have their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gemmrepro.errors import UserError

WRITTEN = (".snakemake", "results", "resources", "reports")
"""The folders that a run writes to, besides the one for temporary files."""

NEEDED = 16e6
"""Bytes without which a run cannot begin: Snakemake's records and its log take as many."""

FULL = 1e6
"""Bytes of free space at which a disk counts as full once a job has failed."""


def check(folders: Sequence[str] = WRITTEN) -> None:
    """Raises UserError if a disk is too full to begin."""
    for sentence in full_disks(NEEDED, folders):
        raise UserError(sentence)


def say_what_is_full() -> None:
    """Print a line for each full disk, after a run that failed."""
    for sentence in full_disks():
        print(f"gemmrepro: {sentence}", file=sys.stderr)


def full_disks(least: float = FULL, folders: Sequence[str] = WRITTEN) -> Iterator[str]:
    """A sentence for each disk with less than `least` bytes left."""
    said = set()
    for name in (*folders, os.environ.get("TMPDIR", "/tmp")):
        folder = next(path for path in (Path(name).absolute(), *Path(name).absolute().parents) if path.exists())
        status, device = os.statvfs(folder), folder.stat().st_dev
        left = status.f_bavail * status.f_frsize
        if device in said or left >= least:
            continue
        said.add(device)
        yield (
            f"the disk that holds {folder} is full ({left / 1e6:.1f} MB left); free some space and run the same "
            "command again: what was finished is kept."
        )
