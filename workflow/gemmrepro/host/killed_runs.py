"""What a run that was killed leaves behind: jobs that go on, and Snakemake's lock, which stops the next run.

A run holds a lock of the operating system on a file in .snakemake, which ends with it. A guard process shares that
lock, and ends the run's jobs when the run has died. So Snakemake's own lock counts only while somebody holds the file;
the next run, which waits for the guard, removes it otherwise. The guard also notes what finished jobs wrote
(`finished_outputs`), which the next run compares with what it finds.

    python -m gemmrepro.host.killed_runs MARK      the guard: waits for the end of standard input, then ends jobs
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from gemmrepro.errors import UserError
from gemmrepro.host.finished_outputs import FinishedOutputs

MARK = "GEMMREPRO_RUN"
"""The environment variable by which a run's jobs are known, wherever they are in the tree of processes."""

PATIENCE = 5.0
"""Seconds that jobs have to end by themselves, and their guard to end; the next run waits for both."""

INTERVAL = 2.0
"""Seconds between the guard's looks at what has finished."""

NAMED = 20
"""Damaged outputs that are named; more are counted."""


class Run:
    """This process's run in a working folder. Make one before Snakemake locks the folder."""

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
        self._folder, self._locks = folder, folder / "locks"
        self.alone = _lock(self._file, 0.0) or (not self._owner_lives() and _lock(self._file, 3 * PATIENCE))
        if self.alone:
            self._remove_stale_lock()
            self._sign()
            self._say_what_differs()
        elif (owner := self._owner()) and any(self._locks.glob("*.lock")):
            host, process = owner
            # Snakemake deletes every lock where a run ends, not its own alone.
            _say(
                f"another run (process {process} on {host}) is at work here; make nothing that it makes, which "
                "Snakemake refuses only until either ends."
            )
        _hang_up_ends_cleanly()

    def start(self) -> None:
        """Have this run's jobs end with it, however it ends. Call it before the first job."""
        # A dry run may have held the file for a moment.
        self.alone = self.alone or _lock(self._file, 3 * PATIENCE)
        if self.alone:
            self._sign()
        os.environ[MARK] = secrets.token_hex(8)
        ends, self._alive = os.pipe()  # `_alive` is closed by the end of this process
        subprocess.Popen(
            [sys.executable, "-m", "gemmrepro.host.killed_runs", os.environ[MARK]],
            stdin=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._file],
            start_new_session=True,
        )
        os.close(ends)

    def _owner(self) -> tuple[str, int] | None:
        """Host and process of the last run that held the file."""
        words = os.pread(self._file, 1000, 0).decode(errors="replace").split()
        return (words[0], int(words[1])) if len(words) == 2 and words[1].isdecimal() else None

    def _owner_lives(self) -> bool:
        owner = self._owner()
        return owner is None or owner[0] != socket.gethostname() or Path(f"/proc/{owner[1]}").exists()

    def _sign(self) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{socket.gethostname()} {os.getpid()}\n".encode(), 0)
        os.fsync(self._file)  # Snakemake's lock may outlast a power cut; so must the name of whose it was

    def _remove_stale_lock(self) -> None:
        stale = list(self._locks.glob("*.lock"))
        owner = self._owner()
        if not stale or owner is None:
            return
        host, process = owner
        if host != socket.gethostname():  # not every shared file system shares locks
            _say(f"the last run here was process {process} on {host}; if it is over, add --unlock once, on any host.")
            return
        for path in stale:
            path.unlink(missing_ok=True)
        _say(f"the last run here (process {process}) was killed; its lock is removed, and this run goes on from there.")

    def _say_what_differs(self) -> None:
        found = FinishedOutputs(self._folder).check()
        for sentence in found[:NAMED]:
            _say(sentence)
        if len(found) > NAMED:
            _say(f"{len(found) - NAMED} more outputs were lost or damaged; they are made again.")


def _say(text: str) -> None:
    print(f"gemmrepro: {text}", file=sys.stderr, flush=True)


def _lock(file: int, patience: float) -> bool:
    """Lock `file`; False if it is still held after `patience` seconds, or the file system has no locks."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        except OSError:
            return False


def _hang_up_ends_cleanly() -> None:
    """A closed terminal ends a run and its jobs, and leaves no lock; nohup still has them go on."""

    def end(number: int, frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # no new jobs
        if mark := os.environ.get(MARK):
            for process in marked(mark):
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGTERM)

    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, end)


def marked(mark: str) -> Iterator[int]:
    """The processes of the run `mark` that can be seen, without this one."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        if wanted in variables and int(folder.name) != os.getpid():
            yield int(folder.name)


def end_jobs(mark: str) -> None:
    """End the processes of the run `mark`, by force after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    told: set[int] = set()
    while left := set(marked(mark)):
        force = time.monotonic() > deadline
        for process in left if force else left - told:
            try:
                os.kill(process, signal.SIGKILL if force else signal.SIGTERM)
            except OSError:
                continue
        told |= left
        time.sleep(0.05)


def main() -> None:
    """The guard."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ended = threading.Event()
    notes = threading.Thread(target=_note_outputs, args=[ended], daemon=True)
    notes.start()
    sys.stdin.buffer.read()
    end_jobs(sys.argv[1])
    ended.set()
    notes.join(PATIENCE)


def _note_outputs(ended: threading.Event) -> None:
    """Note finished outputs until the run has ended, and once more then."""
    outputs = FinishedOutputs()
    while not ended.wait(INTERVAL):
        outputs.add()
    outputs.add()


if __name__ == "__main__":
    main()
