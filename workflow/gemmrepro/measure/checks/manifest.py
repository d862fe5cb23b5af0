"""The manifest of a family's recording: the SHA-256 of each of its files.

It finds a file that was damaged, edited or exchanged after it was recorded. Who rewrites the manifest as well has to
satisfy every other check.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_json
from gemmrepro.core.names import RESTORE
from gemmrepro.measure.checks.refusal import refused

MANIFEST = "manifest.json"


def digest(data: bytes) -> str:
    """The SHA-256 of `data` in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a family's recording: its files by their paths in the folder, with their hashes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {
        "version": 1,
        "files": {
            path.relative_to(folder).as_posix(): digest(path.read_bytes())
            for path in paths
            if not path.name.startswith(".")
        },
    }


def write_manifest(folder: Path) -> None:
    """Write the manifest of a family's recording into its folder."""
    write_json(folder / MANIFEST, manifest(folder))


def check_manifest(folder: Path, *names: str) -> None:
    """Check a recording's files against its manifest, if it has one.

    Args:
        names: the only files to check; default: all.

    Raises:
        UserError: names the first file that differs, is missing, or is not listed.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return
    listed = read_json(path, "the recording", RESTORE)
    schemas.check(listed, "manifest.schema.yaml", f"the recording {path}")
    files = listed["files"]
    for name in names or sorted({*files, *manifest(folder)["files"]}):
        there = (folder / name).is_file()
        if there != (name in files):
            raise refused(path, "", f"{name} is {'there and not listed' if there else 'listed and missing'}")
        if there and digest((folder / name).read_bytes()) != files[name]:
            raise refused(folder / name, "", f"it is not the file that {MANIFEST} lists")
