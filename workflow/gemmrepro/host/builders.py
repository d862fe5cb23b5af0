"""The programs that build container images, and the base images that they start from."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gemmrepro.core import files
from gemmrepro.errors import UserError
from gemmrepro.host.containers import capabilities
from gemmrepro.host.workspace import EPOCH, DiskFull, NoNetwork, Workspace, run

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
