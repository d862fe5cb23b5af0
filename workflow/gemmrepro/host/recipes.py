"""Contents of images: Dockerfiles, the lock ``nix/sources.json``, hashes of packages, and the lock of a built image."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

LOCK = "nix/sources.json"

SOURCES = ROOT / LOCK

SNAPSHOT = "GEMMREPRO_SNAPSHOT"
"""The variable with the address of a snapshot of Debian, for what its mirrors no longer have."""

RELOCK = "PYTHONPATH=workflow envs/run python -m gemmrepro lock-sources"


@dataclass(frozen=True)
class Environment:
    """A root file system's packages: to unpack, to install with pip, and (`apart`) of another Debian release."""

    debs: tuple[str, ...]
    python: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """``nix/sources.json``: the mirrors' date (YYYY-MM-DD), the seed and its `nar`'s SHA-256, every file's SHA-256."""

    date: str
    seed: str
    seed_nar: str
    environments: Mapping[str, Environment]
    sha256: Mapping[str, str]

    @classmethod
    def read(cls, path: Path = SOURCES) -> Sources:
        """Raises UserError if the file is missing or damaged."""
        try:
            value = json.loads(path.read_text())
            environments = {
                name: Environment(**{kind: tuple(files) for kind, files in environment.items()})
                for name, environment in value["environments"].items()
            }
            return cls(value["date"], value["seed"], value["seed_nar"], environments, value["sha256"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} cannot be used ({error}); take it from git, or write it anew: {RELOCK}.") from None

    def debian(self, env: str) -> dict[str, str]:
        """Versions of Debian's packages in an environment, by name; none in one that is not locked."""
        environment = self.environments.get(env, Environment(()))
        return dict(unquote(name).split("_")[:2] for name in (*environment.debs, *environment.apart))

    def debian_sha256(self, env: str) -> str:
        """A hash over what `debian` gives, by which a rule notices a change for its image alone."""
        return hashlib.sha256(json.dumps(self.debian(env), sort_keys=True).encode()).hexdigest()


KEYWORDS = ("ARG", "FROM", "RUN", "COPY", "ENV", "LABEL")


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile: its base image, its instructions, the repository's files that it copies, the hash of its text."""

    path: Path
    base: str
    instructions: tuple[tuple[str, str], ...]
    copies: tuple[str, ...]
    sha256: str

    def all(self, keyword: str) -> list[str]:
        return [rest for word, rest in self.instructions if word == keyword]

    def values(self, keyword: str) -> dict[str, str]:
        """Values that ENV or LABEL set: NAME=value, quoted as in a shell."""
        return dict(word.partition("=")[::2] for rest in self.all(keyword) for word in shlex.split(rest))


def read_recipe(path: Path, root: Path = ROOT) -> Recipe:
    """Read a Dockerfile.
    Raises UserError if it is missing, names no base image, uses an instruction that is none of `KEYWORDS`, or copies a
    file that is not in the repository."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"the recipe {path} cannot be read ({error.strerror}); give an existing Dockerfile.") from None
    base = re.search(r"^ARG\s+BASE=(\S+)\s*$", text, re.MULTILINE)
    if not base or not re.search(r"^FROM\s+\$\{?BASE\}?\s*$", text, re.MULTILINE):
        raise UserError(f"{path} names no base image; write 'ARG BASE=debian:12-slim' and 'FROM ${{BASE}}' on top.")
    steps = instructions(text)
    if odd := [keyword for keyword, _ in steps if keyword not in KEYWORDS]:
        raise UserError(f"{path} uses {odd[0]}; recipes are limited to {', '.join(KEYWORDS)}.")
    copied = [shlex.split(rest)[:-1] for keyword, rest in steps if keyword == "COPY"]
    copies = [word for words in copied for word in words if not word.startswith("--")]
    if absent := [copy for copy in copies if not (root / copy).is_file()]:
        raise UserError(f"{path} copies {absent[0]}, which is not a file of the repository; correct the COPY line.")
    return Recipe(path, base[1], steps, tuple(copies), hashlib.sha256(text.encode()).hexdigest())


def instructions(text: str) -> tuple[tuple[str, str], ...]:
    """The instructions of a Dockerfile, in order: keyword and rest, continued lines joined, without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", "", "\n".join(lines))
    parts = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return tuple((keyword.upper(), rest.strip()) for keyword, _, rest in parts)


def debian_packages(recipe: Recipe) -> tuple[str, ...]:
    """The packages that a Dockerfile asks for, sorted: the words after ``apt-locked <image>``."""
    return tuple(sorted({word for _, words in _installs(recipe) for word in words.split()}))


def locked_as(recipe: Recipe) -> str:
    """The image whose versions a Dockerfile installs, the word after ``apt-locked``; empty where it installs none."""
    return next((image for image, _ in _installs(recipe)), "")


def _installs(recipe: Recipe) -> list[tuple[str, str]]:
    return [found for rest in recipe.all("RUN") for found in re.findall(r"apt-locked (\w+) ([^&;\n]+)", rest)]


def requirements_sha256(recipe: Recipe, root: Path = ROOT) -> str:
    """SHA-256 over the files that the recipe copies, in the recipe's order, without `LOCK`, which is every image's."""
    digest = hashlib.sha256()
    for copy in recipe.copies:
        if copy != LOCK:
            digest.update((root / copy).read_bytes())
    return digest.hexdigest()


def normalized(name: str) -> str:
    """A name of a Python package, by which it is the same in any spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages_apart(recipe: str) -> dict[tuple[str, str], str]:
    """Packages of another release in a recipe: ``ARG X_VERSION``, ``ARG X_SHA256``, ``--apart … NAME=$X_VERSION``."""
    values = dict(re.findall(r"^ARG (\w+_(?:VERSION|SHA256))=(\S+)$", recipe, re.MULTILINE))
    taken = re.findall(r'--apart "[^"]*" ([\w.+-]+)=\$(\w+)_VERSION', recipe)
    return {(name, values[f"{part}_VERSION"]): values[f"{part}_SHA256"] for name, part in taken}
