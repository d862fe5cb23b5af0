"""SHA-256 of the files that an image's packages were installed from, out of the locks in the repository.

pip and apt check what they download: pip against ``envs/requirements``, apt against the release's signed lists.
``nix/sources.json`` names one file for each package, with its hash; a recipe names what it takes from another release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gemmrepro.core.files import read_json
from gemmrepro.core.paths import ROOT


def normalized(name: str) -> str:
    """A name of a Python package, by which it is the same in any spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True)
class PackageHashes:
    """Hashes by package.

    Attributes:
        files: SHA-256 by file name, of packages in any of the images.
        wheels: of one image's Python packages, (normalized name, version) to SHA-256.
        allowed: every SHA-256 that the image's lock allows, by (normalized name, version).
        apart: (name, version) to SHA-256, of packages that the recipe takes from another release.
    """

    files: Mapping[str, str]
    wheels: Mapping[tuple[str, str], str]
    allowed: Mapping[tuple[str, str], tuple[str, ...]]
    apart: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, env: str, root: Path = ROOT) -> PackageHashes:
        """Those of the image `env`. Raises UserError if nix/sources.json is not JSON."""
        sources = read_json(root / "nix/sources.json", "the lock of the flake", "take it from git")
        requirements, recipe = root / f"envs/requirements/{env}.txt", root / f"docker/{env}.Dockerfile"
        allowed = _allowed(requirements.read_text()) if requirements.is_file() else {}
        apart = packages_apart(recipe.read_text()) if recipe.is_file() else {}
        return cls(sources["sha256"], _wheels(sources, env, allowed), allowed, apart)

    def debian(self, name: str, version: str, arch: str) -> str | None:
        """The hash of a package of Debian's, where this version of it is locked."""
        file = f"{name}_{quote(version, safe='+~')}_{arch}.deb".replace("%3A", "%3a")
        return self.files.get(file) or self.apart.get((name, version))

    def python(self, name: str, version: str) -> tuple[str, ...]:
        """The hash of a Python package's file; all that the lock allows where it is not known which pip took."""
        package = normalized(name), version
        return (self.wheels[package],) if package in self.wheels else self.allowed.get(package, ())


def _allowed(requirements: str) -> dict[tuple[str, str], tuple[str, ...]]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)((?:.*\\\n)*.*)$", requirements, re.MULTILINE)
    return {(normalized(name), version): tuple(re.findall(r"sha256:(\w{64})", rest)) for name, version, rest in found}


def _wheels(
    sources: Mapping[str, Any], env: str, allowed: Mapping[tuple[str, str], tuple[str, ...]]
) -> dict[tuple[str, str], str]:
    """The files that pip chooses in the image, as far as the image's lock still allows them."""
    files = sources["environments"].get(env, {}).get("python", ())
    named = {tuple(file.removesuffix(".tar.gz").split("-")[:2]): sources["sha256"][file] for file in files}
    chosen = {(normalized(name), version): digest for (name, version), digest in named.items()}
    return {package: digest for package, digest in chosen.items() if digest in allowed.get(package, ())}


def packages_apart(recipe: str) -> dict[tuple[str, str], str]:
    """What a recipe takes from another release: ``ARG X_VERSION``, ``ARG X_SHA256``, ``--apart … NAME=$X_VERSION``."""
    values = dict(re.findall(r"^ARG (\w+_(?:VERSION|SHA256))=(\S+)$", recipe, re.MULTILINE))
    taken = re.findall(r'--apart "[^"]*" ([\w.+-]+)=\$(\w+)_VERSION', recipe)
    return {(name, values[f"{part}_VERSION"]): values[f"{part}_SHA256"] for name, part in taken}
