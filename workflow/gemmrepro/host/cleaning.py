"""Takes out of an image's root file system what belongs to the machine or the moment that built it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

EPOCH = 1767225600
"""The time, in seconds since 1970, given to files that the build itself writes: 2026-01-01."""

EMPTIED = (
    *("run", "tmp", "var/tmp", "var/log", "var/cache/apt", "var/cache/debconf", "var/cache/ldconfig"),
    *("var/lib/apt/lists", "root"),
)
"""Folders whose content is of no use in an image: logs, caches, package lists, what tools leave in HOME."""

OF_THE_HOST = ("etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id")
"""Files that describe a host. They are there, empty: Apptainer mounts its own over some of them."""

REMOVED = (
    *("etc/apt/apt.conf.d/99mmdebstrap", "var/lib/systemd/random-seed", ".dockerenv"),
    *(
        "etc/passwd-",
        "etc/group-",
        "etc/shadow-",
        "etc/gshadow-",
        "var/lib/dpkg/status-old",
        "var/lib/dpkg/available-old",
    ),
)
"""Files that hold the host's apt settings, or are copies that tools keep of what they change."""


def clean(folder: Path, started: float) -> None:
    """Empty logs and caches, blank what names the host, and give files that the build wrote one time, `EPOCH`.

    Args:
        folder: the root of the image.
        started: when the build began, in seconds since 1970. Files older than that come out of packages and keep their
            times, which Python's compiled modules refer to.
    """
    for name in EMPTIED:
        for entry in (folder / name).glob("*"):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name in OF_THE_HOST:
        path = folder / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.touch(0o644)
    for name in REMOVED:
        (folder / name).unlink(missing_ok=True)
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*folders, *files, "."):
            path = Path(parent, name)
            if path.lstat().st_mtime >= started:
                os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
