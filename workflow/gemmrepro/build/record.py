"""The build record: the outcome of compiling a kernel with a toolkit, as ``results/build/<toolkit>/<id>.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gemmrepro.core.files import json_text, read_json
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel

FATBIN, SASS, RECORD = ".fatbin", ".sass", ".json"
"""Suffixes of a build's files: code, its disassembly, and the build record."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Resources of one entry point on one architecture.
    Registers, stack and spills are per thread, `shared_bytes` (static) is per block. `threads` per block is None unless
    the compiler chooses the block size."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    threads: int | None = None

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, kw_only=True)
class MachineCode(Usage):
    """The code of one entry point for one architecture.
    `instructions`: static counts of opcodes with their modifiers; `hot_loop`: listing of `sass.Function.hot_loop`."""

    constant_bytes: int
    barriers: int
    instructions: Mapping[str, int]
    instruction_total: int
    hot_loop: str


Codes = Mapping[str, MachineCode]
"""Machine code by architecture ("sm_90")."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build record.

    Attributes:
        toolkit, toolkit_version: "cuda13", "13.0.88".
        sources: SHA-256 of the source and its headers, by path relative to the repository.
        advisories: requests of the source that ptxas reports it did not follow.
        archs: the code of `entry`, the main entry point.
        variants: the code of every entry point by name if there are several; else empty.
        packages: versions of the Python packages that determine the code.
        refused: messages of expected refusals by architecture; None if the source compiled after all.
    """

    kernel: str
    toolkit: str
    toolkit_version: str
    build_key: str
    flags: tuple[str, ...]
    sources: Mapping[str, str]
    entry: str
    advisories: tuple[str, ...]
    archs: Codes
    variants: Mapping[str, Codes] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    compiler: str = "nvcc"
    refused: Mapping[str, str | None] = field(default_factory=dict)

    def codes(self, entry: str) -> Codes:
        """The code of one of the kernel's entry points. Raises KeyError if there is no such entry point."""
        return self.variants[entry] if self.variants else {self.entry: self.archs}[entry]

    def to_json(self) -> dict[str, Any]:
        """The record as JSON; fields that equal their default are omitted."""
        value = asdict(self)
        for code in (code for codes in (value["archs"], *value["variants"].values()) for code in codes.values()):
            if code["threads"] is None:
                del code["threads"]
        omitted = {"variants": {}, "packages": {}, "compiler": "nvcc", "refused": {}}
        return {name: entry for name, entry in value.items() if name not in omitted or entry != omitted[name]}

    def written(self) -> bytes:
        """The record as its file holds it."""
        return json_text(self.to_json()).encode()

    @classmethod
    def from_json(cls, value: Any, path: Path) -> Build:
        """The inverse of `to_json`. Raises UserError, which names the file `path`, if a field is missing or unknown."""
        try:
            lists = {name: tuple(value[name]) for name in ("flags", "advisories")}
            variants = {entry: _codes(codes) for entry, codes in value.get("variants", {}).items()}
            return cls(**{**value, **lists, "archs": _codes(value["archs"]), "variants": variants})
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"the build record {path} is corrupt ({error}); run the target 'build' again.") from None


def read_build(kernel: Kernel, build: Path, toolkit: str) -> Build:
    """The build record of `kernel`. Raises UserError if it is missing or corrupt."""
    path = Path(build) / toolkit / f"{kernel.id}.json"
    remedy = f"run the build stage: python -m gemmrepro build --kernels {kernel.id} --toolkit {toolkit}"
    return Build.from_json(read_json(path, "the build record", remedy), path)


def find_build(kernel_id: str, build: Path, toolkit: str) -> Build | None:
    """The build record of a kernel; None if it was not built. Raises UserError if the record is corrupt."""
    path = Path(build) / toolkit / f"{kernel_id}.json"
    again = "run the target 'build' again"
    return Build.from_json(read_json(path, "the build record", again), path) if path.is_file() else None


def _codes(value: Any) -> dict[str, MachineCode]:
    return {arch: MachineCode(**code) for arch, code in value.items()}
