"""A build's private folder, and how tools run in it: their output is passed on, and they leave nothing behind."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.core import files
from gemmrepro.errors import UserError

NO_SPACE = re.compile(r"no space left on device|disk quota exceeded|ENOSPC", re.IGNORECASE)

UNREACHABLE = re.compile(
    r"temporary failure (in name resolution|resolving)|could not resolve|name or service not known|"
    r"network is unreachable|cannot assign requested address|no address associated with hostname|could not connect to",
    re.IGNORECASE,
)

GONE = re.compile(r"gemmrepro: (?=Debian's mirror no longer has )")
"""The words of `docker/apt-locked` where it refuses."""

NO_HOSTS_FILE = re.compile(r"/etc/hosts: no such file", re.IGNORECASE)

EPOCH = 1767225600
"""The time, in seconds since 1970, given to files that the build itself writes: 2026-01-01."""

TAIL = 15
"""Lines of a failed tool's output that its error quotes."""


class DiskFull(UserError):
    """The one error for a full disk, whichever tool met it first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the disk that holds {folder} ran full; an image takes up to 5 GB there while it is built (torch: 20 GB). "
            "Free some space and run the same command again."
        )


class NoNetwork(UserError):
    """A tool could not reach what it downloads from."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "no network: the packages for a container image could not be downloaded "
            f"({reason}). Connect this machine, or copy resources/images/ (the .sif and .lock.json files) from one "
            "where they were built."
        )


@dataclass(frozen=True)
class Workspace:
    """A build's private folder, gone when the build ends.
    `environ`: of the tools that run in it; a build adds to it. `lock_fd`: its lock, which tools inherit."""

    path: Path
    environ: dict[str, str]
    lock_fd: int
    started: float

    @property
    def short(self) -> Path:
        """A second folder, gone when the build ends, for what podman wants at a path of 50 characters at most."""
        return Path("/tmp", self.path.name)


@contextlib.contextmanager
def workspace(parent: Path, name: str, environ: Mapping[str, str]) -> Iterator[Workspace]:
    """A folder under `parent`, removed at the end, also on a signal; folders of killed builds are removed first.
    It is in use while a process holds the lock in it: the build, or a tool that it started and that outlived it."""
    parent.mkdir(parents=True, exist_ok=True)
    for stale in parent.glob(".build-*"):
        with contextlib.suppress(OSError), (stale / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(stale)
            remove_tree(Path("/tmp", stale.name))
    path = Path(tempfile.mkdtemp(prefix=f".build-{name}-", dir=parent))

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with (path / "lock").open("a") as lock:
            files.lock(lock.fileno(), fcntl.LOCK_EX)
            (path / "tmp").mkdir()
            Path("/tmp", path.name).mkdir()  # before another user, who might have read its name
            started = path.stat().st_mtime
            # The tools' own defaults are /tmp, /var/tmp and HOME.
            own = {**environ, "TMPDIR": str(path / "tmp"), "APPTAINER_TMPDIR": str(path / "tmp")}
            yield Workspace(path, own, lock.fileno(), started)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        remove_tree(path)
        remove_tree(Path("/tmp", path.name))


def remove_tree(path: Path) -> None:
    """Remove `path` with everything below it, unmounting first what a build left mounted there."""
    if not path.exists():
        return
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{path.resolve()}/"):
            subprocess.run(["umount", "--lazy", mount], capture_output=True)

    def retry(function: Callable[[str], object], name: str, _: object) -> None:
        # A folder in an image may lack write permission, which stops an ordinary user from emptying it.
        with contextlib.suppress(OSError):
            if Path(name) != path:
                Path(name).parent.chmod(0o700)
            Path(name).chmod(0o700)
            function(name)

    if os.geteuid() and (path / "storage").exists():
        # An ordinary user's build leaves files of the other users in the image, which only its namespace may remove.
        for builder in filter(shutil.which, ("buildah", "podman")):
            subprocess.run([builder, "unshare", "rm", "-rf", path / "storage"], capture_output=True)
    shutil.rmtree(path, onerror=retry)


def run(command: Sequence[str | Path], work: Workspace, *, quiet: bool = False) -> str:
    """Run a tool, passing its output on as it comes; of a `quiet` one the standard output is returned instead.
    Raises UserError, with the end of its output or the full disk or missing network behind it, if the tool fails."""
    argv = [str(word) for word in command]
    tail, complaints = collections.deque[str](maxlen=TAIL), dict[re.Pattern[str], str]()
    with tempfile.TemporaryFile("w+", dir=work.path) as capture:
        process = subprocess.Popen(
            argv,
            env=work.environ,
            stdin=subprocess.DEVNULL,
            stdout=capture if quiet else subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(work.lock_fd,),
            start_new_session=True,
        )
        try:
            for line in process.stdout or process.stderr or ():
                tail.append(line.rstrip())
                for pattern in (NO_SPACE, UNREACHABLE, NO_HOSTS_FILE, GONE):
                    if pattern.search(line):
                        complaints.setdefault(pattern, line.strip())
                print(line, end="", file=sys.stderr, flush=True)
            process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode:
            raise _failure(argv, process.returncode, tail, complaints, work.path.parent)
        capture.seek(0)
        return capture.read()


def _failure(
    argv: Sequence[str], code: int, tail: Sequence[str], complaints: Mapping[re.Pattern[str], str], folder: Path
) -> UserError:
    """The error for a tool that failed, by the first thing that it complained of."""
    if NO_SPACE in complaints:
        return DiskFull(folder)
    if UNREACHABLE in complaints:
        return NoNetwork(complaints[UNREACHABLE])
    if GONE in complaints:
        return UserError(GONE.split(complaints[GONE])[-1])
    if NO_HOSTS_FILE in complaints:
        return UserError(
            f"{Path(argv[0]).name} reads /etc/hosts, which this host lacks; ask its administrator for one "
            "(touch /etc/hosts will do), then run the same command again."
        )
    output = "\n  ".join(tail) or "nothing"
    return UserError(f"'{shlex.join(argv[:4])} …' failed with status {code}. Its last output:\n  {output}")
