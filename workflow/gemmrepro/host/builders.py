"""The programs that build container images, the base images that they start from, and a build's private folder."""

import collections
import contextlib
import dataclasses
import fcntl
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gemmrepro.core import files
from gemmrepro.errors import UserError
from gemmrepro.host.containers import capabilities

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


BUILDERS = ("docker", "podman", "buildah")

CAP_SYS_RESOURCE = 24
"""The capability to raise limits above the own hard ones, by its number in Linux."""


def find_builder(path: str | None = None) -> str:
    """The first of `BUILDERS` on `path` (default: PATH) that works; says on stderr why others were passed over.
    Raises UserError, with the reason for each, if none works."""
    reasons: list[str] = []
    for name in BUILDERS:
        program = shutil.which(name, path=path)
        if program is None:
            reasons.append(f"{name} is not installed")
        elif (reason := _refusal([program, "--version" if name == "buildah" else "info"])) is not None:
            reasons.append(f"{name} does not work ({reason})")
        # The recipes need BuildKit, which docker clients from 23 on reach through their plug-in buildx alone.
        elif name == "docker" and _refusal([program, "build", "--help"], DOCKER_BUILDKIT="1") is not None:
            reasons.append("docker has no buildx (on Debian: apt-get install docker-buildx)")
        else:
            if passed_over := [reason for reason in reasons if not reason.endswith("not installed")]:
                print(f"Building with {name}: {'; '.join(passed_over)}.", file=sys.stderr, flush=True)
            return name
    raise UserError(
        f"no program here can build an image: {'; '.join(reasons)}. "
        "Install buildah, podman or Docker (on Debian or Ubuntu: apt-get install buildah mmdebstrap)."
    )


def _refusal(query: list[str], **variables: str) -> str | None:
    """The last line of what a command says when it fails, run with some variables set; None if it succeeds."""
    environ = os.environ | variables
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=environ
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no answer, {type(error).__name__}"
    if answer.returncode == 0:
        return None
    output = (answer.stderr or answer.stdout).strip().splitlines() or ["no reason given"]
    return output[-1].strip()


def mounts_containers(builder: str) -> bool:
    """Whether a build's root file system can be reached as a folder: with buildah, as root."""
    return builder == "buildah" and os.geteuid() == 0


def builder_command(builder: str, work: Workspace) -> list[str]:
    """The builder with its global options. The storage of buildah and podman is in the build's own folder."""
    if builder == "docker":
        return [builder]
    # "chroot" needs neither namespaces nor control groups, which restricted machines deny, nor a runtime such as runc.
    work.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    overlay = "overlay" in Path("/proc/filesystems").read_text().split()
    work.environ.setdefault("STORAGE_DRIVER", "overlay" if overlay else "vfs")
    runroot = work.short if builder == "podman" else work.path / "run"
    # A build in place has one layer; as a plain folder it needs no unmounting, which waits for the disk. Given a root,
    # buildah (1.28) takes the driver from this option alone.
    driver = ["--storage-driver", "vfs"] if mounts_containers(builder) else []
    return [builder, "--root", str(work.path / "storage"), "--runroot", str(runroot), *driver]


def limit_options(builder: str, proc: Path = Path("/proc")) -> list[str]:
    """Options that keep a build within this process's hard limits, where it may not raise them.
    By default buildah (1.39) and podman set limits of their own, which fails without CAP_SYS_RESOURCE."""
    held = capabilities(proc)
    if builder == "docker" or held is None or held >> CAP_SYS_RESOURCE & 1:
        return []
    options = []
    # Never above their own defaults either: those they may set first, after which there is no way up.
    for name, number, most in (("nofile", resource.RLIMIT_NOFILE, 1048576), ("nproc", resource.RLIMIT_NPROC, 32768)):
        hard = resource.getrlimit(number)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
        options.append(f"--ulimit={name}={limit}:{limit}")
    return options


PULL_SECONDS = 90
"""Time that a registry may take to hand over the base image (30 MB) before it counts as unreachable."""

SUITES = {"11": "bullseye", "12": "bookworm", "13": "trixie"}
"""Debian's releases by the number in a base image's tag."""

KEYRINGS = Path("/usr/share/keyrings")

CHAIN = ("bullseye", "bookworm")
"""Releases of Debian (11, 12) that each are signed by keys that the one before has, and bring the next one's."""


@dataclass(frozen=True)
class Base:
    """A base image: its name in the builder's storage or a tar file; `temporary` if stored for this build alone."""

    origin: Literal["registry", "mmdebstrap"]
    name: str = ""
    tar: Path | None = None
    temporary: bool = False


def provide_base(env: str, image: str, builder: str, folder: Path, work: Workspace) -> Base:
    """Provide the base image `image` for building `env`; bases that are made here are kept in `folder`.
    Raises UserError if no registry provides it, and it cannot be made here."""
    tar = base_tar(image, folder)
    if tar is None or not tar.exists():
        try:
            name, temporary = _pull(image, builder, work)
            return Base("registry", name, temporary=temporary)
        except DiskFull:
            raise
        except UserError as unpulled:
            try:
                tar = make_base(image, folder, work)
            except UserError:
                if isinstance(unpulled, NoNetwork) and shutil.which("mmdebstrap"):
                    raise unpulled from None  # mmdebstrap does not say what apt met
                raise
    if mounts_containers(builder):
        return Base("mmdebstrap", tar=tar)
    # A name of this image's own, so that images built side by side do not remove each other's.
    name = f"localhost/gemmrepro-base-{env}"
    _load(tar, name, builder, work)
    return Base("mmdebstrap", name, temporary=True)


def _pull(image: str, builder: str, work: Workspace) -> tuple[str, bool]:
    """Pull an image from a registry; returns its name in the builder's storage, and whether it was not there before."""
    limit = ["timeout", "--kill-after=5", str(PULL_SECONDS)]
    if builder != "docker":
        # "docker://" spells the default registry without naming it; docker itself knows only the bare name.
        pull = [*builder_command(builder, work), "pull", "--quiet", f"docker://{image}"]
        return run([*limit, *pull], work, quiet=True).strip().splitlines()[-1], True
    missing = subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode != 0
    if missing:
        run([*limit, "docker", "pull", "--quiet", image], work, quiet=True)
    return image, missing


def _load(tar: Path, name: str, builder: str, work: Workspace) -> None:
    command = builder_command(builder, work)
    if builder == "buildah":
        container = run([*command, "from", "scratch"], work, quiet=True).strip()
        run([*command, "add", "--quiet", container, tar, "/"], work, quiet=True)
        run([*command, "commit", "--quiet", "--rm", container, name], work, quiet=True)
    else:
        run([*command, "import", tar, name], work, quiet=True)


def base_tar(base: str, folder: Path) -> Path | None:
    """The path of the locally made replacement for the image `base`; None if `base` is not a Debian release."""
    release = re.fullmatch(r"(?:.*/)?debian:(\d+)(?:[.-].*)?", base)
    return folder / f".base-{SUITES[release[1]]}.tar" if release and release[1] in SUITES else None


def make_base(base: str, folder: Path, work: Workspace) -> Path:
    """A minimal Debian as a tar file, made once and shared between images; for machines that reach no registry.
    Raises UserError if `base` is not a Debian release, or mmdebstrap is missing or fails."""
    tar = base_tar(base, folder)
    if tar is None:
        raise UserError(
            f"no registry provides the base image {base}, and only Debian {', '.join(SUITES)} can be made here. "
            "Make an image registry reachable."
        )
    suite = tar.stem.removeprefix(".base-")
    with (folder / f".base-{suite}.lock").open("a") as lock:
        files.lock(lock.fileno(), fcntl.LOCK_EX)  # images that build at the same time make it once
        if tar.exists():
            return tar
        if not shutil.which("mmdebstrap"):
            raise UserError(
                f"no registry provides the base image {base}, and mmdebstrap, which can make one, is not installed. "
                "Install mmdebstrap, or make an image registry reachable."
            )
        print(f"No registry provides {base}: making it with mmdebstrap.", file=sys.stderr, flush=True)
        # What the -slim images leave out, here and in what is installed later.
        slim = [f"--dpkgopt=path-exclude=/usr/share/{path}/*" for path in ("doc", "man", "info", "locale")]
        slim.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
        slim.append('--aptopt=Acquire::Languages "none"')
        part = work.path / "base.tar"
        # Without root, mmdebstrap runs as a mapped user that may not traverse HOME: let it use /tmp.
        environ = {name: value for name, value in work.environ.items() if name != "TMPDIR"}
        environ["SOURCE_DATE_EPOCH"] = str(EPOCH)  # no file is younger: the same packages make the same base
        work = dataclasses.replace(work, environ=environ)
        make = ["mmdebstrap", "--quiet", "--variant=minbase", *slim, *apt_options()]
        try:
            run([*make, suite, part], work)
        except (DiskFull, NoNetwork):
            raise
        except UserError as failed:  # for want of keys, perhaps
            try:
                keyrings = newer_keys(apt_options(), work)
            except UserError:
                raise failed from None
            run([*make, f"--keyring={keyrings}", suite, part], work)
        part.replace(tar)
        return tar


def newer_keys(options: Sequence[str], work: Workspace) -> Path:
    """A folder with the keys of Debian 12, each fetched from a release whose signature the ones before verify.
    `options`: of mmdebstrap, to fetch as this host's apt does. Raises UserError if it fails or lacks Debian 11's."""
    # An ordinary user's mmdebstrap may not enter that user's home.
    keyrings, folder = KEYRINGS, work.short / "keys"
    for release in CHAIN:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{release}.tar"
        package = ["--variant=extract", "--include=debian-archive-keyring", f"--keyring={keyrings}"]
        run(["mmdebstrap", "--quiet", *package, *options, release, part], work)
        subprocess.run(["tar", "-x", "-f", part, "-C", folder, "--no-same-owner", f".{KEYRINGS}"], check=True)
        part.unlink()
        keyrings = folder / KEYRINGS.relative_to("/")
    return keyrings


def apt_options() -> list[str]:
    """The host's own apt settings for fetching (proxies, date checks), to fetch a base in the same way."""
    if not shutil.which("apt-config"):
        return []
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    settings = re.compile(r"^(Acquire::(https?::|Check-|Retries).*)$", re.MULTILINE)
    return [f"--aptopt={setting}" for setting, _ in settings.findall(dump)]
