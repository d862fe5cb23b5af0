"""A throwaway copy of this machine's file system, in which a test may install packages and start daemons.

An overlay over / in a mount namespace of its own: what is written outside /tmp is gone when it closes, and so are the
processes that were started in it. It needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from support import ROOT

# pivot_root and not chroot: Apptainer refuses to run in a chroot. The arguments after the first are mounted as well.
SET_UP = """
set -euo pipefail
base=$1; shift
root=$base/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/up,workdir=$base/work" "$root"
for folder in /sys /dev /tmp "$@"; do mkdir -p "$root$folder"; mount --rbind "$folder" "$root$folder"; done
mount -t proc proc "$root/proc"
names=$(cat /etc/resolv.conf)
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/lock" "$root/.old"
rm -f "$root/etc/resolv.conf"
printf '%s\\n' "$names" >"$root/etc/resolv.conf"
cd "$root"
pivot_root . .old
cd /
umount -l /.old
echo ready
sleep infinity &
wait
"""

IN_FOLDER = 'cd "$1" && shift && exec "$@"'


class Unavailable(Exception):
    """This machine gives no overlay; the message says why."""


class Overlay:
    """The copy; a context manager. `folder` holds what changes in it, and must not be on an overlay itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Overlay:
        if os.geteuid() != 0:
            raise Unavailable("an overlay over / needs root")
        for name in ("up", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        device = Path("/").stat().st_dev
        elsewhere = {str(path) for path in (ROOT, Path(sys.prefix)) if path.stat().st_dev != device}
        elsewhere = {path for path in elsewhere if not path.startswith("/tmp/")}
        self._holder = subprocess.Popen(
            [
                *(
                    "setpriv",
                    "--pdeathsig=KILL",
                    "unshare",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--propagation=private",
                ),
                *("bash", "-c", SET_UP, "overlay", str(self.folder), *sorted(elsewhere)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            raise Unavailable(f"no overlay over / here: {self._holder.stderr.read().strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._holder
        self._holder.send_signal(signal.SIGKILL)
        self._holder.communicate()

    @property
    def _inside(self) -> int:
        """The first process inside, a child of unshare."""
        assert self._holder
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        return int(children[0])

    def call(self, *command: str, cwd: Path | str = "/", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `command` inside; its stdout holds both streams."""
        return subprocess.run(
            [
                *("nsenter", f"--target={self._inside}", "--mount", "--pid"),
                *("sh", "-c", IN_FOLDER, "sh", str(cwd), *command),
            ],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
