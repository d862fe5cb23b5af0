"""The manifest of a family's recording: the SHA-256 of each of its files.

It finds a file that was damaged, edited or exchanged after it was recorded. Who rewrites the manifest as well has to
satisfy every other check.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from gemmrepro.core.files import write_json
from gemmrepro.measure.checks.refusal import read_document, refused

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
    """Check a recording's files against its manifest; where none of them is there, there is nothing to check.

    Args:
        names: the only files to check; default: all.

    Raises:
        UserError: there is no manifest, or names the first file that differs, is missing, or is not listed.
    """
    path = folder / MANIFEST
    if not path.is_file() and not any((folder / name).is_file() for name in names or [*manifest(folder)["files"]]):
        return
    files = read_document(path, "manifest.schema.yaml")["files"]
    for name in names or sorted({*files, *manifest(folder)["files"]}):
        there = (folder / name).is_file()
        if there != (name in files):
            raise refused(path, "", f"{name} is {'there and not listed' if there else 'listed and missing'}")
        if there and digest((folder / name).read_bytes()) != files[name]:
            raise refused(folder / name, "", f"it is not the file that {MANIFEST} lists")
