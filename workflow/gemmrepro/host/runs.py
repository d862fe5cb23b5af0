"""Runs of Snakemake in a folder: what a killed one leaves behind, and outputs that differ from what their jobs wrote.

A run holds a lock of the operating system on a file in .snakemake, and shares it with a guard process, which ends the
run's jobs when the run has died. The next run, which waits for the guard, removes Snakemake's own lock.

Snakemake remembers which jobs finished (.snakemake/metadata) and looks at the times of their outputs alone. So the
guard notes size, time and hash of each finished output in .snakemake/gemmrepro.outputs. The next run compares, and
marks what was cut short, damaged, edited or deleted as Snakemake marks outputs of interrupted jobs, so that it is made
again when a run gets there. An image, also one copied from elsewhere, need only be as long as its header says.
`snakemake --touch FILE` accepts a file as it is.

    python -m gemmrepro.host.runs MARK      the guard: waits for the end of standard input, then ends jobs
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmrepro.core.files import write_atomic
from gemmrepro.errors import UserError
from gemmrepro.host.sif import length_in_header

MARK = "GEMMREPRO_RUN"
"""The environment variable by which a run's jobs are known, wherever they are in the tree of processes."""

PATIENCE = 5.0
"""Seconds that jobs have to end by themselves, and that pass between the guard's notes."""


class Run:
    """This process's run in the working folder. Make one before Snakemake locks the folder."""

    def __init__(self, folder: Path = Path(".snakemake")) -> None:
        """Raises UserError if the folder cannot be written."""
        try:
            folder.mkdir(exist_ok=True)
            self._file = os.open(folder / "gemmrepro.lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(
                f"{folder.absolute().parent} cannot be written ({error.strerror}); run a copy of the checkout in a "
                "folder that you may write to."
            ) from None
        host, _, process = os.pread(self._file, 1000, 0).decode(errors="replace").strip().partition(" ")
        here, left = host == socket.gethostname(), list(folder.glob("locks/*.lock"))
        if self._hold(3 * PATIENCE if here and not Path(f"/proc/{process}").exists() else 0):
            if left and here:
                for path in left:
                    path.unlink(missing_ok=True)
                say(f"the last run here (process {process}) was killed; its lock is removed, and this run goes on.")
            for sentence in check():
                say(sentence)
        elif left:
            # Snakemake deletes every lock where a run ends, not its own alone.
            say(
                f"another run (process {process} on {host}) is at work here; make nothing that it makes, which "
                "Snakemake refuses only until either ends."
            )

    def start(self) -> None:
        """Have this run's jobs end with it, however it ends. Call it before the first job."""
        self._hold(3 * PATIENCE)  # a dry run may have held the file for a moment
        os.environ[MARK] = secrets.token_hex(8)
        ends, self._alive = os.pipe()  # `_alive` is closed by the end of this process
        command = [sys.executable, "-m", "gemmrepro.host.runs", os.environ[MARK]]
        quiet = subprocess.DEVNULL
        subprocess.Popen(command, stdin=ends, stdout=quiet, stderr=quiet, pass_fds=[self._file], start_new_session=True)
        os.close(ends)

    def _hold(self, patience: float) -> bool:
        """Lock the file and sign it; False if another run still holds it after `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
                return True
            except OSError as error:
                # Where the file system has no locks, there is nothing to wait for.
                if not isinstance(error, BlockingIOError) or time.monotonic() >= deadline:
                    return False
                time.sleep(0.05)


def say(text: str) -> None:
    print(f"gemmrepro: {text}", file=sys.stderr, flush=True)


def marked(mark: str) -> set[int]:
    """The processes of the run `mark` that can be seen, without this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found - {os.getpid()}


def end_jobs(mark: str) -> None:
    """End the processes of the run `mark`, by force after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    told: set[int] = set()
    while left := marked(mark):
        force = time.monotonic() > deadline
        for process in left if force else left - told:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL if force else signal.SIGTERM)
        told |= left
        time.sleep(0.05)


def guard() -> None:
    """Note what finished, until the run ends or dies; then end its jobs."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while not select.select([sys.stdin], [], [], PATIENCE)[0]:
        note()
    end_jobs(sys.argv[1])
    note()


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
        if known := found.get(key):  # the record of another of its outputs
            outputs = tuple(sorted({*known.outputs, *job.outputs}))
            job = replace(job, outputs=outputs, start=min(known.start, job.start), end=max(known.end, job.end))
        found[key] = job
        pending += job.inputs
    return sorted(found.values(), key=lambda job: (job.end, job.rule, job.outputs))


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
    name, most = urlsafe_b64encode(path.encode()).decode(), 254  # of the 255 letters of a file's name
    pieces = [name[begin : begin + most] for begin in range(0, len(name), most)]
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


NOTES = Path(".snakemake/gemmrepro.outputs")
IMAGES = Path("resources/images")


def note(folder: Path = Path()) -> None:
    """Note the outputs below `folder` that finished since the last call, and forget those without a record."""
    noted, known, unfinished = {}, _noted(folder), records(folder, "incomplete")
    for name, record in records(folder).items():
        with contextlib.suppress(OSError):  # a job replaces it just now
            made = record.stat().st_mtime_ns
            if name in known and (known[name][0] == made or name in unfinished):
                noted[name] = known[name]
            elif name not in unfinished:
                path = folder / name
                files = [each for each in (path.rglob("*") if path.is_dir() else [path]) if each.is_file()]
                held = (each for each in files if each.suffix != ".sif" and each.name != ".snakemake_timestamp")
                noted[name] = [made, {str(each.relative_to(folder)): _state(each) for each in sorted(held)}]
    _keep(folder, noted, known)


def check(folder: Path = Path()) -> list[str]:
    """Mark the outputs that differ from what is noted, to be made again; returns a sentence on each."""
    noted, finished, faults = _noted(folder), records(folder), dict[str, str]()
    for name, (made, files) in noted.items():
        # With another record it was made again since, or touched.
        if name in finished and finished[name].stat().st_mtime_ns == made:
            for path, state in files.items():
                if fault := _fault(folder / path, state):
                    faults[name] = f"{path} {fault}"
    spoilt = {each for name in faults for each in ([name] if (folder / name).exists() else _beside(name, finished))}
    for image in sorted((folder / IMAGES).glob("*.sif")):
        name = str(image.relative_to(folder))
        if not record_path(name, folder, "incomplete").exists() and not _is_whole(image):
            faults[name] = f"{name} is cut short or damaged"
            spoilt.add(name)
    for name in spoilt:
        mark = record_path(name, folder, "incomplete")
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text('{"external_jobid": null}')
    _keep(folder, {name: entry for name, entry in noted.items() if name not in faults}, noted)
    return [f"{fault}; it is made again." for fault in faults.values()]


def _noted(folder: Path) -> dict[str, Any]:
    """By output: when its record was written, in ns, and the state of each of its files by path."""
    try:
        noted = json.loads((folder / NOTES).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _keep(folder: Path, noted: dict[str, Any], known: dict[str, Any]) -> None:
    if noted != known:
        with contextlib.suppress(OSError):  # a full disk: the old notes stay
            write_atomic(folder / NOTES, json.dumps(noted))


def _state(path: Path) -> list[Any]:
    """Size, time in ns and SHA-256 of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()]


def _fault(path: Path, noted: list[Any]) -> str:
    """What was done to a file since its `_state` was noted; "" for nothing."""
    try:
        status = path.stat()
        if [status.st_size, status.st_mtime_ns] == noted[:2] or _state(path)[2] == noted[2]:
            return ""
    except FileNotFoundError:
        return "was deleted"
    except OSError:
        return ""  # it cannot be read now; the job that needs it says so
    return "was edited or damaged since its job wrote it"


def _beside(name: str, finished: dict[str, Path]) -> set[str]:
    """Outputs that wait for a deleted one: of the same job, or made from it. Snakemake marks only what exists."""
    entries = dict[str, dict[str, Any]]()
    for output, record in finished.items():
        with contextlib.suppress(OSError, ValueError):
            entries[output] = json.loads(record.read_text())
    job = [entries.get(name, {}).get(key) for key in ("rule", "input")]
    return {
        output
        for output, entry in entries.items()
        if [entry.get("rule"), entry.get("input")] == job or name in entry.get("input", ())
    }


def _is_whole(image: Path) -> bool:
    try:
        return image.stat().st_size >= length_in_header(image)
    except ValueError:
        return False
    except OSError:
        return True  # it cannot be read now; the job that needs it says so


if __name__ == "__main__":
    guard()
