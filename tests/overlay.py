"""A throwaway copy of this machine's file system, in which a test may install packages and start daemons.

`tests/hosts/overlay` makes it, here in a process namespace of its own: what is written outside /tmp and the checkout is
gone when it closes, and so are the processes that were started in it. It needs root.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import Self

from support import ROOT, call

STAY = "mount -t proc proc /proc; echo ready; sleep infinity & wait"
IN_FOLDER = 'cd "$1" && shift && exec "$@"'


class Unavailable(Exception):
    """This machine gives no overlay; the message says why."""


class Overlay:
    """The copy; a context manager. `folder` holds what changes in it, and must not be on an overlay itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise Unavailable("an overlay over / needs root")
        own = ("setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child")
        self._holder = subprocess.Popen(
            [*own, ROOT / "tests/hosts/overlay", self.folder, "bash", "-c", STAY],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            raise Unavailable(f"no overlay over / here: {self._holder.stderr.read().strip()}")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        self._inside = children.split()[0]  # the first process inside, a child of unshare
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.send_signal(signal.SIGKILL)
        self._holder.communicate()

    def call(self, *command: str, cwd: Path | str = "/", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `command` inside; its stdout holds both streams."""
        enter = ["nsenter", f"--target={self._inside}", "--mount", "--pid"]
        return call([*enter, "sh", "-c", IN_FOLDER, "sh", str(cwd), *command], **environment)
