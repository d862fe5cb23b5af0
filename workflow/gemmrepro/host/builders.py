"""The programs that build container images: which one works here, and how it is called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host.workspace import Workspace

BUILDERS = ("docker", "podman", "buildah")
"""Programs that build a Dockerfile, in the order they are tried."""


def find_builder(path: str | None = None) -> str:
    """The first of `BUILDERS` that works: a docker client without its engine does not.

    Args:
        path: folders to search, as in PATH, which is the default.

    Raises:
        UserError: none works; gives the reason for each.
    """
    reasons = []
    for name in BUILDERS:
        reason = _why_unusable(name, path)
        if reason is None:
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
    query = [program, "--version"] if name == "buildah" else [program, "info"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} does not answer ({type(error).__name__})"
    if answer.returncode == 0:
        return None
    output = (answer.stderr or answer.stdout).strip().splitlines() or ["no reason given"]
    return f"{name} does not work ({output[-1].strip()})"


def builder_command(builder: str, work: Workspace) -> list[str]:
    """The builder with its global options. Only buildah's storage can be in the build's own folder."""
    if builder != "buildah":
        return [builder]
    # "chroot" needs neither namespaces, which restricted machines deny, nor a runtime such as runc.
    work.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    filesystems = Path("/proc/filesystems").read_text().split()
    work.environ.setdefault("STORAGE_DRIVER", "overlay" if "overlay" in filesystems else "vfs")
    return [builder, "--root", str(work.path / "storage"), "--runroot", str(work.path / "run")]
