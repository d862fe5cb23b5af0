"""Compiles the candidates of a tunable; that needs a toolkit and no GPU.

Each candidate leaves ``<digest>.json`` and, if the compiler takes it, ``<digest>.fatbin``; ``candidates.json`` lists
them all. One that is compiled already, from the same sources with the same toolkit, is not compiled again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from gemmrepro.build.compile import compile_one, wanted_archs
from gemmrepro.build.compilers import compiler
from gemmrepro.build.key import build_key
from gemmrepro.build.toolkit import Toolkit, find_toolkit
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import UserError
from gemmrepro.registry import Tunable
from gemmrepro.tune.candidates import Candidate, Compiled, Footprint, Listing, candidates
from gemmrepro.tune.progress import say

PROGRESS_SECONDS = 10.0


def compile_all(tunable: Tunable, toolkit_name: str, arch: str, folder: Path, jobs: int) -> Listing:
    """Compile every candidate for `arch` ("90"), `jobs` at a time, and write ``candidates.json`` into `folder`.

    Raises:
        UserError: the toolkit is missing or does not know `arch`, a source is missing, or no candidate compiles.
    """
    toolkit = find_toolkit(toolkit_name)
    all_candidates = candidates(tunable)
    target = wanted_archs(all_candidates[0].kernel, toolkit, [arch])[-1]
    start = time.monotonic()
    compiled = _compile_in_parallel(tunable, all_candidates, toolkit, target, folder, max(1, jobs))
    errors = [result.error for result in compiled.values() if result.error is not None]
    say(
        f"{tunable.id}: {len(all_candidates) - len(errors)} of {len(all_candidates)} candidates compiled with "
        f"{toolkit.name} {toolkit.version} for sm_{target} in {time.monotonic() - start:.0f} s"
    )
    if len(errors) == len(all_candidates):
        raise UserError(f"no candidate of {tunable.id} compiles; the compiler says: {errors[0]}")
    listing = Listing(
        folder=folder,
        tunable=tunable,
        toolkit=toolkit.name,
        toolkit_version=toolkit.version,
        target=target,
        packages=compiler(all_candidates[0].kernel).packages(all_candidates[0].kernel),
        candidates={candidate.digest: candidate for candidate in all_candidates},
        compiled=compiled,
    )
    listing.write()
    return listing


def _compile_in_parallel(
    tunable: Tunable, all_candidates: Sequence[Candidate], toolkit: Toolkit, target: str, folder: Path, jobs: int
) -> Mapping[str, Compiled]:
    compiled: dict[str, Compiled] = {}
    reported = time.monotonic()
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(compile_candidate, candidate, toolkit, target, folder) for candidate in all_candidates]
        for future in as_completed(futures):
            result = future.result()
            compiled[result.digest] = result
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                say(f"{tunable.id}: {len(compiled)} of {len(all_candidates)} compiled")
    finally:
        pool.shutdown(cancel_futures=True)
    return compiled


def compile_candidate(candidate: Candidate, toolkit: Toolkit, target: str, folder: Path) -> Compiled:
    """Compile one candidate for `target` into `folder`, unless this very build of it lies there already.

    Raises:
        UserError: the source does not define the record's entry point.
    """
    kernel, key = candidate.kernel, build_key(candidate.kernel, toolkit.version)
    binary, record = folder / f"{candidate.digest}.fatbin", folder / f"{candidate.digest}.json"
    earlier = _read(record)
    if earlier and earlier.is_of(candidate, key, target) and (earlier.error is not None or binary.is_file()):
        return earlier
    error, footprint = None, None
    try:
        fatbin, usage = compile_one(kernel, toolkit, target)
    except UserError as refused:
        error = first_error(str(refused))
    else:
        if usage is None:
            raise UserError(
                f"{kernel.source_path.name} defines no '{kernel.code.entry}' for sm_{target}; check that it is "
                f'extern "C" __global__ and that the tunable names it.'
            )
        footprint = Footprint(usage.registers, usage.spill_bytes, usage.shared_bytes)
        write_atomic(binary, fatbin)
    compiled = Compiled(candidate.digest, candidate.params, key, target, error, footprint)
    write_json(record, compiled.to_json())
    return compiled


def _read(record: Path) -> Compiled | None:
    """What an earlier run wrote; None where there is none, or it is corrupt."""
    try:
        return Compiled.from_json(json.loads(record.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def first_error(log: str) -> str:
    """The compiler's first error in `log`, on one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "no message")[:300]
