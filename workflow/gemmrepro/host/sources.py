"""The one lock of what images hold, whoever builds them, Nix or a Dockerfile: ``nix/sources.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

LOCK = "nix/sources.json"
"""Its path in the repository, as a Dockerfile copies it."""

SOURCES = ROOT / LOCK

SNAPSHOT = "GEMMREPRO_SNAPSHOT"
"""The variable with the address of a snapshot of Debian, for what its mirrors no longer have."""

RELOCK = "PYTHONPATH=workflow envs/run python -m gemmrepro.host.nix_sources lock"


@dataclass(frozen=True)
class Environment:
    """The files of one root file system, by name: packages to unpack, and to install with pip.

    Attributes:
        apart: packages of another release of Debian, of which the recipe takes a few files.
    """

    debs: tuple[str, ...]
    python: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """The content of ``nix/sources.json``.

    Attributes:
        date: when Debian's mirrors had these versions, YYYY-MM-DD.
        seed: name of the seed's package.
        seed_nar: SHA-256 of a folder with its program, as `nar` writes it.
        sha256: hash of every file, by file name.
    """

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
