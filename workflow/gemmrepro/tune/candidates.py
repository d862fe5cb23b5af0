"""The candidates of a tunable: what they are, how they are compiled, and which of them a GPU need not try.

Compiling needs a toolkit and no GPU. Each candidate leaves ``<digest>.json`` and, if the compiler takes it,
``<digest>.fatbin``; ``candidates.json`` lists them all. One that is compiled already, from the same sources with the
same toolkit, is not compiled again. See `gemmrepro.tune` for the command.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.build import compile as build
from gemmrepro.build import sass
from gemmrepro.build.compilers import compiler
from gemmrepro.build.key import build_key
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Tunable


def say(text: str) -> None:
    """A line of progress, on stderr."""
    print(f"tune: {text}", file=sys.stderr, flush=True)


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
    found = [Candidate(params, tunable.make(params)) for params in tunable.candidates()]
    if not found:
        raise UserError(f"the space of {tunable.id} allows no combination; correct it in the family's family.py.")
    return found


def compile_candidate(candidate: Candidate, toolkit: Toolkit, target: str, folder: Path) -> dict[str, Any]:
    """Compile one candidate for `target` into `folder`, unless this very build of it lies there already.

    Returns:
        {digest, params, build_key, target, error; and where error is None: registers, spill_bytes, shared_bytes}.
    """
    kernel = candidate.kernel
    binary, record = folder / f"{candidate.digest}.fatbin", folder / f"{candidate.digest}.json"
    identity = {
        "digest": candidate.digest,
        "params": dict(candidate.params),
        "build_key": build_key(kernel, toolkit.version),
        "target": target,
    }
    try:
        row = json.loads(record.read_text())
        if {key: row[key] for key in identity} == identity and (row["error"] is not None or binary.is_file()):
            return row
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        fatbin, usage = build.compile_one(kernel, toolkit, target)
    except UserError as error:
        row = identity | {"error": complaint(str(error))}
    else:
        if usage is None:
            raise UserError(
                f"{kernel.source_path.name} defines no '{kernel.entry}' for sm_{target}; check that it is "
                f'extern "C" __global__ and that the tunable names it.'
            )
        row = identity | {
            "error": None,
            "registers": usage.registers,
            "spill_bytes": usage.spill_bytes,
            "shared_bytes": usage.shared_bytes,
        }
        write_atomic(binary, fatbin)
    write_json(record, row)
    return row


def complaint(log: str) -> str:
    """The compiler's first error in `log`, on one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "no message")[:300]


def compile_all(tunable: Tunable, toolkit_name: str, arch: str, folder: Path, jobs: int) -> dict[str, Any]:
    """Compile every candidate, `jobs` at a time, and write ``candidates.json`` into `folder`; returns its content.

    Raises:
        UserError: the toolkit is missing or does not know `arch`, a source is missing, or no candidate compiles.
    """
    toolkit = find_toolkit(toolkit_name)
    field = candidates(tunable)
    target = build.wanted_archs(field[0].kernel, toolkit, [arch])[-1]
    rows: dict[str, dict[str, Any]] = {}
    start = spoke = time.monotonic()
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        waiting = [pool.submit(compile_candidate, candidate, toolkit, target, folder) for candidate in field]
        for done in as_completed(waiting):
            row = done.result()
            rows[row["digest"]] = row
            if time.monotonic() - spoke > 10:
                spoke = time.monotonic()
                say(f"{tunable.id}: {len(rows)} of {len(field)} compiled")
    finally:
        pool.shutdown(cancel_futures=True)
    refused = [row["error"] for row in rows.values() if row["error"] is not None]
    say(
        f"{tunable.id}: {len(field) - len(refused)} of {len(field)} candidates compiled with {toolkit.name} "
        f"{toolkit.version} for sm_{target} in {time.monotonic() - start:.0f} s"
    )
    if len(refused) == len(field):
        raise UserError(f"no candidate of {tunable.id} compiles; the compiler says: {refused[0]}")
    listing = {
        "kernel": tunable.id,
        "toolkit": toolkit.name,
        "toolkit_version": toolkit.version,
        "target": target,
        # What else is part of a build key; where candidates are measured, these need not be installed.
        "packages": compiler(field[0].kernel).packages(field[0].kernel),
        "candidates": [rows[candidate.digest] for candidate in field],
    }
    write_json(folder / "candidates.json", listing)
    return listing


@dataclass(frozen=True)
class Limits:
    """What a GPU gives one block: bytes of shared memory, registers, threads."""

    shared_bytes: int
    registers: int
    threads: int

    @classmethod
    def here(cls) -> Limits:
        """Those of the GPU at hand."""
        import cupy

        known = cupy.cuda.runtime.getDeviceProperties(0)
        return cls(known["sharedMemPerBlockOptin"], known["regsPerBlock"], known["maxThreadsPerBlock"])


@dataclass(frozen=True)
class Listing:
    """A compile step's result, checked against today's registry and sources."""

    folder: Path
    toolkit: str
    toolkit_version: str
    target: str
    field: dict[str, Candidate]
    rows: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, folder: Path, tunable: Tunable) -> Listing:
        """Read ``candidates.json`` of `folder`.

        Raises:
            UserError: it is missing, corrupt, of another tunable, of a former space, or of former sources.
        """
        again = f"run the compile step again: python -m gemmrepro.tune.stage compile --kernel {tunable.id}"
        path = folder / "candidates.json"
        content = read_json(path, "the list of candidates", again)
        field = {candidate.digest: candidate for candidate in candidates(tunable)}
        try:
            rows = {row["digest"]: row for row in content["candidates"]}
            if content["kernel"] != tunable.id:
                raise UserError(f"{path} lists candidates of {content['kernel']}, not of {tunable.id}.")
            version, packages = content["toolkit_version"], content.get("packages")
            current = rows.keys() == field.keys() and all(
                rows[name]["build_key"] == build_key(candidate.kernel, version, packages)
                and (rows[name]["error"] is not None or rows[name]["registers"] > 0)
                for name, candidate in field.items()
            )
            listing = cls(folder, content["toolkit"], version, content["target"], field, rows)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is corrupt ({type(error).__name__}: {error}); {again}.") from None
        if not current:
            raise UserError(f"{path} belongs to another space or other sources of {tunable.id}; {again}.")
        return listing

    def unfit(self, name: str, shapes: Sequence[Shape], limits: Limits) -> str | None:
        """Why a candidate need not be tried on a GPU with these limits, or None."""
        row, kernel = self.rows[name], self.field[name].kernel
        if row["error"] is not None:
            return f"does not compile: {row['error']}"
        if row["spill_bytes"]:
            return f"spills {row['spill_bytes']} bytes"
        for shape in shapes:
            try:
                kernel.check(shape)
            except UserError as error:
                return str(error)
        launch = kernel.launch(shapes[0])
        threads = math.prod(launch.block)
        if threads > limits.threads:
            return f"{threads} threads a block are over the GPU's {limits.threads}"
        shared = row["shared_bytes"] + launch.shared_bytes
        if shared > limits.shared_bytes:
            return f"{shared} bytes of shared memory a block are over the GPU's {limits.shared_bytes}"
        registers = sass.allocated_registers(row["registers"], threads)
        if registers > limits.registers:
            return f"{registers} registers a block are over the GPU's {limits.registers}"
        return None
