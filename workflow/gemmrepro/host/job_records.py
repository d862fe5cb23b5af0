"""What Snakemake keeps about finished jobs in .snakemake/metadata: inputs, outputs, command, times.

A job has one record per output, which is read by the output's path. The names of the records are Snakemake's: the path
in URL-safe base64, in pieces if it is longer than a file name may be.
"""

from __future__ import annotations

import contextlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.errors import UserError

_LONGEST = 255


@dataclass(frozen=True)
class Job:
    """A finished job.

    Attributes:
        rule: the rule that it ran.
        inputs, outputs: paths relative to the folder of the run; outputs as far as they were asked for.
        command: the shell command, empty for a rule in Python.
        image: the container image it ran in, empty for none.
        start, end: seconds since 1970.
    """

    rule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    command: str
    image: str
    start: float
    end: float


def jobs_behind(targets: Iterable[str], folder: Path) -> list[Job]:
    """Every job whose outputs `targets` rest on, in the order in which they ended.

    Args:
        targets: paths relative to `folder`.
        folder: where Snakemake ran.

    Raises:
        UserError: a target has no record, or a record cannot be read.
    """
    found: dict[tuple[object, ...], Job] = {}
    pending, seen, targets = list(targets), set[str](), set(targets)
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        job = _job(path, folder)
        if job is None:
            if path in targets:
                raise UserError(f"nothing is recorded about how {path} was made; run the target 'all' first.")
            continue
        key = (job.rule, job.inputs, job.command)
        known = found.get(key)
        found[key] = job if known is None else _joined(known, job)
        pending += job.inputs
    return sorted(found.values(), key=lambda job: (job.end, job.rule, job.outputs))


def _joined(one: Job, other: Job) -> Job:
    """The same job as its records for two outputs tell it."""
    outputs = tuple(sorted({*one.outputs, *other.outputs}))
    start, end = min(one.start, other.start), max(one.end, other.end)
    return Job(one.rule, one.inputs, outputs, one.command, one.image, start, end)


def _job(path: str, folder: Path) -> Job | None:
    """The job that made `path`, with this output alone; None for a file that no job made."""
    record = record_path(path, folder)
    if not record.is_file():
        return None
    try:
        entry = json.loads(record.read_text())
        start, end = sorted((float(entry["starttime"]), float(entry["endtime"])))
        command, image = str(entry["shellcmd"] or ""), str(entry["container_img_url"] or "")
        return Job(entry["rule"], tuple(entry["input"]), (path,), command, image, start, end)
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"Snakemake's record of {path} is not usable; delete {path} and run the target 'all' again."
        ) from None


def record_path(path: str, folder: Path, kind: str = "metadata") -> Path:
    """Snakemake's file about an output in `folder`: `metadata` of a finished one, or a mark that it is `incomplete`."""
    name = urlsafe_b64encode(path.encode()).decode()
    step = _LONGEST - 1
    pieces = [name[begin : begin + step] for begin in range(0, len(name), step)]
    return folder.joinpath(".snakemake", kind, *(f"@{piece}" for piece in pieces[:-1]), pieces[-1])


def records(folder: Path, kind: str = "metadata") -> dict[str, Path]:
    """Snakemake's files about outputs in `folder`, by the output's path; see `record_path`."""
    top, found = folder / ".snakemake" / kind, dict[str, Path]()
    for path in top.rglob("*"):
        with contextlib.suppress(ValueError):  # no name of Snakemake's
            name = urlsafe_b64decode("".join(part.lstrip("@") for part in path.relative_to(top).parts)).decode()
            if path.is_file():
                found[name] = path
    return found
