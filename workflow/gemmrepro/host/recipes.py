"""Reads Dockerfiles, and makes the lock: the list of everything that decides an image's content."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.inventory import Entry
from gemmrepro.host.sources import LOCK

KEYWORDS = ("ARG", "FROM", "RUN", "COPY", "ENV", "LABEL")
"""The instructions that a recipe may use."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: its keyword and the rest of it, continued lines joined and comments left out."""

    keyword: str
    rest: str


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile as the build sees it.

    Attributes:
        base: the image it starts from.
        instructions: all of it, in order.
        copies: files of the repository that it copies.
        sha256: of its text.
    """

    path: Path
    base: str
    instructions: tuple[Instruction, ...]
    copies: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Packages:
    """The packages in an image, (name, version), in any order: Debian's (`os`) and Python's."""

    os: tuple[tuple[str, str], ...]
    python: tuple[tuple[str, str], ...]

    @classmethod
    def listed(cls, listing: Mapping[str, Iterable[Entry]]) -> Packages:
        """From what `sif.list_packages` gives."""
        return cls(*(tuple((each["name"], each["version"]) for each in listing[kind]) for kind in ("os", "python")))


def read_recipe(path: Path, root: Path = ROOT) -> Recipe:
    """Read what `images` needs from a Dockerfile.

    Raises:
        UserError: the file is missing, names no base image, uses an instruction that is none of `KEYWORDS`, or copies a
            file that is not in the repository.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"the recipe {path} cannot be read ({error.strerror}); give an existing Dockerfile.") from None
    base = re.search(r"^ARG\s+BASE=(\S+)\s*$", text, re.MULTILINE)
    if not base or not re.search(r"^FROM\s+\$\{?BASE\}?\s*$", text, re.MULTILINE):
        raise UserError(f"{path} names no base image; write 'ARG BASE=debian:12-slim' and 'FROM ${{BASE}}' on top.")
    steps = instructions(text)
    for step in steps:
        if step.keyword not in KEYWORDS:
            raise UserError(f"{path} uses {step.keyword}; recipes are limited to {', '.join(KEYWORDS)}.")
    copied = [shlex.split(step.rest)[:-1] for step in steps if step.keyword == "COPY"]
    copies = [word for words in copied for word in words if not word.startswith("--")]
    for copy in copies:
        if not (root / copy).is_file():
            raise UserError(f"{path} copies {copy}, which is not a file of the repository; correct the COPY line.")
    return Recipe(path, base[1], steps, tuple(copies), hashlib.sha256(text.encode()).hexdigest())


def instructions(text: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile, in order."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", "", "\n".join(lines))
    words = [line.strip().split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return tuple(Instruction(keyword.upper(), rest[0] if rest else "") for keyword, *rest in words)


def debian_packages(recipe: Recipe) -> tuple[str, ...]:
    """The packages that a Dockerfile asks for, sorted: the words after ``apt-locked <image>``."""
    return tuple(sorted({word for _, words in _installs(recipe) for word in words.split()}))


def locked_as(recipe: Recipe) -> str:
    """The image whose versions a Dockerfile installs, the word after ``apt-locked``; empty where it installs none."""
    return next((image for image, _ in _installs(recipe)), "")


def _installs(recipe: Recipe) -> list[tuple[str, str]]:
    steps = [step.rest for step in recipe.instructions if step.keyword == "RUN"]
    return [found for rest in steps for found in re.findall(r"apt-locked (\w+) ([^&;\n]+)", rest)]


def requirements_sha256(recipe: Recipe, root: Path = ROOT) -> str:
    """SHA-256 over the files that the recipe copies, in the recipe's order, without `LOCK`, which is every image's."""
    digest = hashlib.sha256()
    for copy in recipe.copies:
        if copy != LOCK:
            digest.update((root / copy).read_bytes())
    return digest.hexdigest()


def lock_record(
    env: str,
    recipe: Recipe,
    requirements: str,
    base: str,
    builder: str,
    apptainer: str,
    packages: Packages,
    locked: Mapping[str, str],
) -> dict[str, Any]:
    """The lock: everything that decides what is in an image, in a stable order and without dates.

    Of each package of Debian's it says whether it is in the locked version.

    Args:
        requirements: `requirements_sha256` of the recipe.
        base: the base image and where it came from.
        apptainer: the name and version of the runtime that made the SIF and ran it.
        locked: versions of Debian's packages by name, as `LOCK` has them for the image.
    """

    def listing(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"name": name, "version": version} for name, version in sorted(set(pairs))]

    return {
        "env": env,
        "base": base,
        "builder": builder,
        "apptainer": apptainer,
        "recipe_sha256": recipe.sha256,
        "requirements_sha256": requirements,
        "os": [each | {"locked": locked.get(each["name"]) == each["version"]} for each in listing(packages.os)],
        "python": listing(packages.python),
    }
