"""The jobs and the lock that a killed run leaves behind.

A run holds a lock of the operating system on a file in .snakemake, and shares it with a guard process, which ends the
run's jobs when the run has died. The next run, which waits for the guard, removes Snakemake's own lock. The guard also
notes what finished jobs wrote (`finished_outputs`), which the next run compares with what it finds.

    python -m gemmrepro.host.killed_runs MARK      the guard: waits for the end of standard input, then ends jobs
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host import finished_outputs

MARK = "GEMMREPRO_RUN"
"""The environment variable by which a run's jobs are known, wherever they are in the tree of processes."""

PATIENCE = 5.0
"""Seconds that jobs have to end by themselves."""

INTERVAL = 5.0
"""Seconds between the guard's notes."""


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
        here = host == socket.gethostname()
        ended = here and not Path(f"/proc/{process}").exists()
        left = list(folder.glob("locks/*.lock"))
        if self._hold(3 * PATIENCE if ended else 0):
            if left and here:
                for path in left:
                    path.unlink(missing_ok=True)
                say(f"the last run here (process {process}) was killed; its lock is removed, and this run goes on.")
            for sentence in finished_outputs.check():
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
        command = [sys.executable, "-m", "gemmrepro.host.killed_runs", os.environ[MARK]]
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
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.05)
            except OSError:  # the file system has no locks
                return False


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


def main() -> None:
    """The guard."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        finished_outputs.note()
    end_jobs(sys.argv[1])
    finished_outputs.note()


if __name__ == "__main__":
    main()
