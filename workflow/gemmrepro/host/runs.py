"""Runs of Snakemake in a folder: what a killed one leaves behind, and outputs that differ from what their jobs wrote.

A run shares a lock on a file in .snakemake with a guard process, which ends the run's jobs when the run has died. The
next run waits for the guard and removes Snakemake's own lock.

Snakemake looks at the times of outputs alone. So the guard notes size, time and hash of each finished output in
.snakemake/gemmrepro.outputs; the next run marks what was cut short, damaged, edited or deleted as incomplete, and it is
made again. An image need only be as long as its header says. `snakemake --touch FILE` accepts a file as it is.

    python -m gemmrepro.host.runs MARK      the guard: waits for the end of standard input, then ends jobs
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from gemmrepro.core.files import write_atomic
from gemmrepro.errors import UserError

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
        here, locks = host == socket.gethostname(), list(folder.glob("locks/*.lock"))
        if self._hold(3 * PATIENCE if here and not Path(f"/proc/{process}").exists() else 0):
            if locks and here:
                for path in locks:
                    path.unlink(missing_ok=True)
                say(f"the last run here (process {process}) was killed; its lock is removed, and this run goes on.")
            for sentence in check():
                say(sentence)
        elif locks:
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


def guard(mark: str) -> None:
    """Note what finished until the run `mark` ends or dies; then end its jobs, by force after `PATIENCE` seconds."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while not select.select([sys.stdin], [], [], PATIENCE)[0]:
        note()
    deadline, told = time.monotonic() + PATIENCE, set[int]()
    while processes := _jobs(mark):
        force = time.monotonic() > deadline
        for process in processes if force else processes - told:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL if force else signal.SIGTERM)
        told |= processes
        time.sleep(0.05)
    note()


def _jobs(mark: str) -> set[int]:
    """The processes of the run `mark` that can be seen, without this one."""
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                processes.add(int(folder.name))
    return processes - {os.getpid()}


def record_path(path: str, folder: Path, kind: str = "metadata") -> Path:
    """Snakemake's file about an output in `folder`: `metadata` of a finished one, or a mark that it is `incomplete`."""
    name, most = urlsafe_b64encode(path.encode()).decode(), 254  # of the 255 letters of a file's name
    pieces = [name[begin : begin + most] for begin in range(0, len(name), most)]
    return folder.joinpath(".snakemake", kind, *(f"@{piece}" for piece in pieces[:-1]), pieces[-1])


def records(folder: Path, kind: str = "metadata") -> dict[str, Path]:
    """Snakemake's files about outputs in `folder`, by the output's path."""
    top, paths = folder / ".snakemake" / kind, dict[str, Path]()
    for path in top.rglob("*"):
        with contextlib.suppress(ValueError):  # no name of Snakemake's
            name = urlsafe_b64decode("".join(part.lstrip("@") for part in path.relative_to(top).parts)).decode()
            if path.is_file():
                paths[name] = path
    return paths


NOTES = Path(".snakemake/gemmrepro.outputs")
MOST_SAID = 8
"""Outputs that differ are named up to this many, and counted beyond."""

IMAGES = Path("resources/images")

HEADER = struct.Struct("<32x10s70xqq")
"""Of a SIF: its magic bytes, where its data begin, and their length (github.com/sylabs/sif, type header)."""


def note(folder: Path = Path()) -> None:
    """Note the outputs below `folder` that finished since the last call, and forget those without a record.
    Of each output: when its record was written, in ns, and `_state` of its files by path."""
    noted, before, unfinished = {}, _noted(folder), records(folder, "incomplete")
    for name, record in records(folder).items():
        with contextlib.suppress(OSError):  # a job replaces it just now
            made = record.stat().st_mtime_ns
            if name in before and (before[name][0] == made or name in unfinished):
                noted[name] = before[name]
            elif name not in unfinished:
                path = folder / name
                files = [each for each in (path.rglob("*") if path.is_dir() else [path]) if each.is_file()]
                held = (each for each in files if each.suffix != ".sif" and each.name != ".snakemake_timestamp")
                noted[name] = [made, {str(each.relative_to(folder)): _state(each) for each in sorted(held)}]
    _keep(folder, noted, before)


def check(folder: Path = Path()) -> list[str]:
    """Mark the outputs that differ from what is noted, to be made again; returns what to say of them."""
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
    said = [f"{fault}; it is made again." for fault in list(faults.values())[:MOST_SAID]]
    more = len(faults) - len(said)
    return [*said, f"{more} more were deleted or changed; they are made again."] if more else said


def _noted(folder: Path) -> dict[str, Any]:
    try:
        noted = json.loads((folder / NOTES).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _keep(folder: Path, noted: dict[str, Any], before: dict[str, Any]) -> None:
    if noted != before:
        with contextlib.suppress(OSError):  # a full disk: the old notes stay
            write_atomic(folder / NOTES, json.dumps(noted))


def _state(path: Path) -> list[Any]:
    """Size, time in ns and SHA-256 of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()]


def _fault(path: Path, noted: list[Any]) -> str:
    """The change to a file since its `_state` was noted; "" for nothing."""
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
        with image.open("rb") as file:
            magic, start, length = HEADER.unpack(file.read(HEADER.size))
        return bool(magic == b"SIF_MAGIC\0" and image.stat().st_size >= start + length)
    except struct.error:
        return False  # shorter than a header
    except OSError:
        return True  # it cannot be read now; the job that needs it says so


if __name__ == "__main__":
    guard(sys.argv[1])
