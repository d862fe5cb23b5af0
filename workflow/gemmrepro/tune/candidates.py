"""The candidates of a tunable: their constants, what they compiled to, and which of them cannot run on a GPU."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmrepro.build.key import build_key
from gemmrepro.build.sass import allocated_registers
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Tunable

LISTING = "candidates.json"


@dataclass(frozen=True)
class Candidate:
    """One combination of constants; `digest` names it in files."""

    params: Mapping[str, int]
    kernel: Kernel

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(dict(self.params), sort_keys=True).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.params.items())


def candidates(tunable: Tunable) -> list[Candidate]:
    """Every candidate of `tunable`. Raises UserError if its space allows none."""
    combinations = [Candidate(params, tunable.make(params)) for params in tunable.candidates()]
    if not combinations:
        raise UserError(f"the space of {tunable.id} allows no combination; correct it in the family's family.py.")
    return combinations


@dataclass(frozen=True)
class Footprint:
    """Registers per thread, bytes that a thread spills, bytes of static shared memory per block."""

    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Compiled:
    """The result of compiling one candidate: its footprint, or the compiler's first error."""

    digest: str
    params: Mapping[str, int]
    build_key: str
    target: str
    error: str | None
    footprint: Footprint | None

    def is_of(self, candidate: Candidate, build_key: str, target: str) -> bool:
        """Whether this is the result of compiling `candidate` under `build_key` for `target`."""
        return (self.digest, self.build_key, self.target) == (candidate.digest, build_key, target)

    def to_json(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "params": dict(self.params),
            "build_key": self.build_key,
            "target": self.target,
            "error": self.error,
            **(asdict(self.footprint) if self.footprint else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Compiled:
        """Raises KeyError or TypeError if `value` is not what `to_json` made."""
        error = value["error"]
        footprint = (
            Footprint(value["registers"], value["spill_bytes"], value["shared_bytes"]) if error is None else None
        )
        return cls(value["digest"], dict(value["params"]), value["build_key"], value["target"], error, footprint)


@dataclass(frozen=True)
class Limits:
    """The most that one block may use on a GPU: bytes of shared memory, registers, threads."""

    shared_bytes: int
    registers: int
    threads: int

    @classmethod
    def here(cls) -> Limits:
        """Those of this machine's GPU."""
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        return cls(properties["sharedMemPerBlockOptin"], properties["regsPerBlock"], properties["maxThreadsPerBlock"])


@dataclass(frozen=True)
class Listing:
    """The compile step's results for all candidates of a tunable, in `folder`.

    `packages` are the versions that enter the build keys; the measuring machine need not have them installed.
    `candidates` and `compiled` are by digest.
    """

    folder: Path
    tunable: Tunable
    toolkit: str
    toolkit_version: str
    target: str
    packages: Mapping[str, str] | None
    candidates: Mapping[str, Candidate]
    compiled: Mapping[str, Compiled]

    def write(self) -> None:
        """Write ``candidates.json``."""
        content = {
            "kernel": self.tunable.id,
            "toolkit": self.toolkit,
            "toolkit_version": self.toolkit_version,
            "target": self.target,
            "packages": self.packages,
            "candidates": [self.compiled[digest].to_json() for digest in self.candidates],
        }
        write_json(self.folder / LISTING, content)

    @classmethod
    def read(cls, folder: Path, tunable: Tunable) -> Listing:
        """Read ``candidates.json`` of `folder`, and check it against today's registry and sources.

        Raises:
            UserError: it is missing or corrupt, or belongs to another tunable, an older space or older sources.
        """
        again = f"run the compile step again: python -m gemmrepro.tune.stage compile --kernel {tunable.id}"
        path = folder / LISTING
        content = read_json(path, "the list of candidates", again)
        try:
            compiled = {row["digest"]: Compiled.from_json(row) for row in content["candidates"]}
            if content["kernel"] != tunable.id:
                raise UserError(f"{path} lists candidates of {content['kernel']}, not of {tunable.id}.")
            listing = cls(
                folder=folder,
                tunable=tunable,
                toolkit=content["toolkit"],
                toolkit_version=content["toolkit_version"],
                target=content["target"],
                packages=content.get("packages"),
                candidates={candidate.digest: candidate for candidate in candidates(tunable)},
                compiled=compiled,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{path} is corrupt ({type(error).__name__}: {error}); {again}.") from None
        if not listing.is_current():
            raise UserError(f"{path} belongs to another space or other sources of {tunable.id}; {again}.")
        return listing

    def is_current(self) -> bool:
        """Whether these are today's candidates, compiled from today's sources."""
        return self.compiled.keys() == self.candidates.keys() and all(
            self.compiled[digest].build_key == build_key(candidate.kernel, self.toolkit_version, self.packages)
            for digest, candidate in self.candidates.items()
        )

    def binary(self, digest: str) -> Path:
        """The fat binary of a candidate."""
        return self.folder / f"{digest}.fatbin"

    def unfit(self, digest: str, shapes: Sequence[Shape], limits: Limits) -> str | None:
        """Why a candidate cannot run, or not without spills, on a GPU with these limits; None if it can."""
        compiled, kernel = self.compiled[digest], self.candidates[digest].kernel
        footprint = compiled.footprint
        if footprint is None:
            return f"does not compile: {compiled.error}"
        if footprint.spill_bytes:
            return f"spills {footprint.spill_bytes} bytes"
        for shape in shapes:
            try:
                kernel.check(shape)
            except UserError as error:
                return str(error)
        launch = kernel.launch(shapes[0])
        threads = math.prod(launch.block)
        if threads > limits.threads:
            return f"{threads} threads per block are over the GPU's {limits.threads}"
        shared = footprint.shared_bytes + launch.shared_bytes
        if shared > limits.shared_bytes:
            return f"{shared} bytes of shared memory per block are over the GPU's {limits.shared_bytes}"
        registers = allocated_registers(footprint.registers, threads)
        if registers > limits.registers:
            return f"{registers} registers per block are over the GPU's {limits.registers}"
        return None
