"""The programs that build container images: which one works here, and how it is called."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host.containers import capabilities
from gemmrepro.host.workspace import Workspace

BUILDERS = ("docker", "podman", "buildah")
"""Programs that build a Dockerfile, in the order they are tried."""

CAP_SYS_RESOURCE = 24
"""The capability to raise limits above the own hard ones, by its number in Linux."""


def find_builder(path: str | None = None) -> str:
    """The first of `BUILDERS` that works; says on stderr why one that is installed was passed over.

    Args:
        path: folders to search, as in PATH, which is the default.

    Raises:
        UserError: none works; gives the reason for each.
    """
    reasons: list[str] = []
    for name in BUILDERS:
        reason = _why_unusable(name, path)
        if reason is None:
            passed_over = [reason for reason in reasons if not reason.endswith("not installed")]
            if passed_over:
                print(f"Building with {name}: {'; '.join(passed_over)}.", file=sys.stderr, flush=True)
            return name
        reasons.append(reason)
    raise UserError(
        f"no program here can build an image: {'; '.join(reasons)}. "
        "Install buildah, podman or Docker (on Debian or Ubuntu: apt-get install buildah mmdebstrap)."
    )


def _why_unusable(name: str, path: str | None) -> str | None:
    """Why a builder does not work here; None if it does."""
    program = shutil.which(name, path=path)
    if program is None:
        return f"{name} is not installed"
    reason = _refusal([program, "--version"] if name == "buildah" else [program, "info"])
    if reason is not None:
        return f"{name} does not work ({reason})"
    # The recipes need BuildKit, which docker clients from 23 on reach through their plug-in buildx alone.
    if name == "docker" and _refusal([program, "build", "--help"], DOCKER_BUILDKIT="1") is not None:
        return "docker has no buildx (on Debian: apt-get install docker-buildx)"
    return None


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

    By default buildah (1.39) and podman set limits of their own, which fails without CAP_SYS_RESOURCE.
    """
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
