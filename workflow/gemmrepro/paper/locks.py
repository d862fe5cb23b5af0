"""The contents of the container images, from their lock files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core.files import read_json


@dataclass(frozen=True)
class PackageView:
    """A package and its version."""

    name: str
    version: str


@dataclass(frozen=True)
class LockView:
    """An image: what it was built from, and its packages. The hashes are SHA-256, in hexadecimal."""

    env: str
    base: str
    builder: str
    apptainer: str
    recipe: str
    requirements: str
    python: tuple[PackageView, ...]
    system: tuple[PackageView, ...]


def read_locks(folder: Path) -> list[LockView]:
    """The images with a lock file in `folder`, which may be missing. Raises UserError if a file is not JSON."""
    paths = sorted(folder.glob("*.lock.json")) if folder.is_dir() else []
    return [lock_view(read_json(path, "the image's lock file", "build the image again")) for path in paths]


def lock_view(lock: Mapping[str, Any]) -> LockView:
    """An image from its lock file."""
    return LockView(
        env=lock["env"],
        base=lock["base"],
        builder=lock["builder"],
        apptainer=lock.get("apptainer", ""),
        recipe=lock["recipe_sha256"] or "",
        requirements=lock["requirements_sha256"] or "",
        python=_packages(lock["python"]),
        system=_packages(lock["os"]),
    )


def _packages(entries: list[Mapping[str, str]] | None) -> tuple[PackageView, ...]:
    return tuple(PackageView(entry["name"], entry["version"]) for entry in entries or ())
