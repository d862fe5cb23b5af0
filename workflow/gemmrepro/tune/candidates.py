"""The candidates of a tunable: their constants, what they compile to, and which of them cannot run on a GPU.

Each leaves ``<digest>.json`` and, if the compiler takes it, ``<digest>.fatbin``; ``candidates.json`` says what compiled
them. What the same toolkit compiled from the same sources is not compiled again. No GPU is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gemmrepro.build.compile import compile_one, wanted_archs
from gemmrepro.build.key import build_key, compiler
from gemmrepro.build.sass import allocated_registers
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.journal import sayer
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Tunable

LISTING = "candidates.json"

FOOTPRINT = ("registers", "spill_bytes", "shared_bytes")
"""Resources of a candidate's launch, as `Compiled` and the table of candidates have it."""


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
class Compiled:
    """The result of compiling one candidate: the compiler's first error, or registers and bytes spilled by a thread,
    and static shared memory of a block."""

    build_key: str
    target: str
    error: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Limits:
    """The most that one block may use on a GPU."""

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
    """The compile step's results for all candidates of a tunable, by digest.
    `packages` are the versions that enter the build keys; the measuring machine need not have them installed."""

    folder: Path
    tunable: Tunable
    toolkit: str
    toolkit_version: str
    target: str
    packages: Mapping[str, str] | None
    candidates: Mapping[str, Candidate]
    compiled: Mapping[str, Compiled]

    @classmethod
    def read(cls, folder: Path, tunable: Tunable) -> Listing:
        """Read what the compile step left in `folder`, and check it against today's registry and sources.
        Raises UserError if it is missing or corrupt, or belongs to another tunable, an older space or older sources."""
        again = f"run the compile step again: python -m gemmrepro tune-compile --kernel {tunable.id}"
        path = folder / LISTING
        found = {candidate.digest: candidate for candidate in candidates(tunable)}
        content = read_json(path, "the list of candidates", again)
        if content["kernel"] != tunable.id:
            raise UserError(f"{path} lists candidates of {content['kernel']}, not of {tunable.id}.")
        records = {digest: read_json(folder / f"{digest}.json", "a candidate's record", again) for digest in found}
        try:
            compiled = {digest: Compiled(**record) for digest, record in records.items()}
        except TypeError as error:
            raise UserError(f"a candidate's record beside {path} is corrupt ({error}); {again}.") from None
        version, packages = content["toolkit_version"], content["packages"]
        if any(compiled[name].build_key != build_key(each.kernel, version, packages) for name, each in found.items()):
            raise UserError(f"{path} belongs to other sources of {tunable.id}; {again}.")
        return cls(folder, tunable, content["toolkit"], version, content["target"], packages, found, compiled)

    def binary(self, digest: str) -> Path:
        return self.folder / f"{digest}.fatbin"

    def unfit(self, digest: str, shapes: Sequence[Shape], limits: Limits) -> str | None:
        """Why a candidate cannot run, or not without spills, on a GPU with these limits; None if it can."""
        compiled, kernel = self.compiled[digest], self.candidates[digest].kernel
        if compiled.error or compiled.registers is None or compiled.shared_bytes is None:
            return f"does not compile: {compiled.error}"
        if compiled.spill_bytes:
            return f"spills {compiled.spill_bytes} bytes"
        for shape in shapes:
            try:
                kernel.check(shape)
            except UserError as error:
                return str(error)
        launch = kernel.launch(shapes[0])
        threads = math.prod(launch.block)
        takes = {
            "threads": (threads, limits.threads),
            "bytes of shared memory": (compiled.shared_bytes + launch.shared_bytes, limits.shared_bytes),
            "registers": (allocated_registers(compiled.registers, threads), limits.registers),
        }
        over = (
            f"{taken} {what} per block are over the GPU's {most}"
            for what, (taken, most) in takes.items()
            if taken > most
        )
        return next(over, None)


def compile_all(tunable: Tunable, toolkit_name: str, arch: str, folder: Path, jobs: int) -> Listing:
    """Compile every candidate for `arch` ("90"), `jobs` at a time, and write ``candidates.json`` into `folder`.
    Raises UserError if the toolkit or a source is missing, `arch` is unknown, or no candidate compiles."""
    toolkit = find_toolkit(toolkit_name)
    combinations = candidates(tunable)
    sample, start = combinations[0].kernel, time.monotonic()
    target = wanted_archs(sample, toolkit, [arch])[-1]
    by_digest, compiled = {each.digest: each for each in combinations}, dict[str, Compiled]()
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = {
            pool.submit(compile_candidate, candidate, toolkit, target, folder): digest
            for digest, candidate in by_digest.items()
        }
        for number, future in enumerate(as_completed(futures), 1):
            compiled[futures[future]] = future.result()
            if number % 50 == 0:
                say(f"{tunable.id}: {number} of {len(futures)} compiled")
    finally:
        pool.shutdown(cancel_futures=True)
    errors = [result.error for result in compiled.values() if result.error is not None]
    say(
        f"{tunable.id}: {len(combinations) - len(errors)} of {len(combinations)} candidates compiled with "
        f"{toolkit.name} {toolkit.version} for sm_{target} in {time.monotonic() - start:.0f} s"
    )
    if len(errors) == len(combinations):
        raise UserError(f"no candidate of {tunable.id} compiles; the compiler says: {errors[0]}")
    packages, version = compiler(sample).packages(sample), toolkit.version
    about = {"kernel": tunable.id, "toolkit": toolkit.name, "toolkit_version": version, "target": target}
    write_json(folder / LISTING, about | {"packages": packages})
    return Listing(folder, tunable, toolkit.name, version, target, packages, by_digest, compiled)


def compile_candidate(candidate: Candidate, toolkit: Toolkit, target: str, folder: Path) -> Compiled:
    """Compile one candidate for `target` into `folder`, unless this very build of it lies there already.
    Raises UserError if the source does not define the record's entry point."""
    kernel = candidate.kernel
    binary, record = folder / f"{candidate.digest}.fatbin", folder / f"{candidate.digest}.json"
    compiled = Compiled(build_key(kernel, toolkit.version), target)
    with contextlib.suppress(OSError, ValueError, TypeError):  # there is none, or it is corrupt
        earlier = Compiled(**json.loads(record.read_text()))
        same = (earlier.build_key, earlier.target) == (compiled.build_key, target)
        if same and (earlier.error is not None or binary.is_file()):
            return earlier
    try:
        fatbin, usage = compile_one(kernel, toolkit, target)
    except UserError as refused:
        compiled = replace(compiled, error=first_error(str(refused)))
    else:
        if usage is None:
            raise UserError(
                f"{kernel.source_path.name} defines no '{kernel.code.entry}' for sm_{target}; check that it is "
                f'extern "C" __global__ and that the tunable names it.'
            )
        compiled = replace(compiled, **{name: getattr(usage, name) for name in FOOTPRINT})
        write_atomic(binary, fatbin)
    write_json(record, asdict(compiled))
    return compiled


def first_error(log: str) -> str:
    """The compiler's first error in `log`, on one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "no message")[:300]


say = sayer("tune")

HANG_SECONDS = 60.0
"""A step of a candidate that takes longer has hung."""

REPLACE = 76
"""Exit code of a measuring process whose GPU context a candidate may have broken."""


class Broken(Exception):
    """A candidate may have left the GPU's context unusable."""


def marker(journal: Path) -> Path:
    """The file that names the candidate at work, and, once that has failed, how."""
    return journal / "at-work"


def suspect(journal: Path) -> str:
    """The marker's text; nothing without one."""
    try:
        return marker(journal).read_text()
    except OSError:
        return ""


def supervise(command: Sequence[str], journal: Path) -> int:
    """Run `command`, again whenever a candidate ends the process; returns its last exit code."""
    marker(journal).unlink(missing_ok=True)  # left by an interrupted run
    while True:
        code = subprocess.run(command, check=False).returncode
        name, _, reason = suspect(journal).partition(" ")
        if code in (0, -signal.SIGINT, -signal.SIGTERM) or not name or (reason and code != REPLACE):
            return code
        if not reason:
            hung = f"it did not end within {HANG_SECONDS:.0f} s"
            how = hung if code == -signal.SIGALRM else f"its process ended with code {code}"
            write_atomic(marker(journal), f"{name} {how}")
        say("a candidate ended its process; going on in a new one")
