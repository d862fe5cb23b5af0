"""The origin of a recording: commit, library versions, and this machine's CPU and memory."""

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import ROOT

_OWN = Path(__file__).resolve().relative_to(ROOT).as_posix()


def libraries(versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of Python packages, and of baselines' libraries from the values of `versions` ("cuBLAS 13.1.0")."""
    named = {text.rsplit(" ", 1)[0]: text.rsplit(" ", 1)[1] for text in versions.values()}
    names = ("cupy-cuda13x", "cupy-cuda12x", "cuda-core", "cuda-bindings", "numpy", "pandas", "nvidia-ml-py", "torch")
    for name in names:
        try:
            named[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return named


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git on this checkout, whoever owns it. Modes do not count. Raises OSError if there is no git."""
    # The user runs this checkout's code anyway, so git may trust it too.
    settings = ("-c", "safe.directory=*", "-c", "core.fileMode=false")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", "--no-optional-locks", *settings, *arguments], cwd=ROOT, env=environ, capture_output=True
    )


def git_commit() -> str | None:
    """The commit of the working tree, followed by "+changes" if tracked files differ from it.
    Outside a repository of its own: the environment variable GEMMREPRO_COMMIT, or None."""
    unknown = os.environ.get("GEMMREPRO_COMMIT") or None
    try:
        head = git("rev-parse", "--show-prefix", "HEAD")
        held = git("cat-file", "-e", f"HEAD:{_OWN}")
        state = git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return unknown
    if head.returncode or held.returncode or state.returncode or not head.stdout.startswith(b"\n"):
        return unknown
    return head.stdout.decode().strip() + ("+changes" if state.stdout.strip() else "")


def cpu(info: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """{name, cores}: the model in /proc/cpuinfo (else the architecture), and the cores that this process may use."""
    try:
        model = re.search(r"^model name\s*:\s*(.+?)\s*$", info.read_text(), re.MULTILINE)
    except OSError:
        model = None
    cores = len(os.sched_getaffinity(0))
    return {"name": model[1] if model else platform.machine(), "cores": cores}


def free_memory(info: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of this machine's memory that programs can have; None where the system does not say."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB$", info.read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(match[1]) if match else None


def cpu_in_words(described: dict[str, Any]) -> str:
    """``Intel Xeon, 2 cores``, of what `cpu` returns."""
    cores = described["cores"]
    return f"{described['name']}, {cores} core{'s' if cores != 1 else ''}"
