"""The environment variables that containers need, however the workflow is started, and the container runtime.

`common.smk` adds `container_environment` to its own environment, so that a bare ``snakemake --use-singularity``
behaves like one under ``envs/run``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro.build.cached import CACHE, CACHE_MB
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

CACHES = {
    "APPTAINER_CACHEDIR": "apptainer-cache",
    "APPTAINER_TMPDIR": "apptainer-tmp",
    "CUDA_CACHE_PATH": "cuda",
    "CUPY_CACHE_DIR": "cupy",
    "MPLCONFIGDIR": "matplotlib",
    "XDG_CACHE_HOME": "xdg",
}
"""Caches that default to HOME, which is the working directory inside the workflow's containers."""

TOOLCHAIN = (
    *("CC", "CXX", "CPP", "CUDAHOSTCXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LD_PRELOAD"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_INC_PATH", "TRITON_PTXAS_PATH"),
)
"""Variables that configure the host's compilers. Apptainer would pass them on: Triton would look for the host's CC in
the container, and nvcc would take the user's flags, which no build key knows."""


def without_toolchain(environ: Mapping[str, str]) -> list[str]:
    """The names of `environ` that containers must not see (`TOOLCHAIN`)."""
    return [name for name in TOOLCHAIN if name in environ]


def container_environment(
    environ: Mapping[str, str],
    *,
    cache: Path = ROOT / "resources" / "cache",
    folder: Path | None = None,
    uid: int | None = None,
    proc: Path = Path("/proc"),
    dev: Path = Path("/dev"),
) -> dict[str, str]:
    """Variables to add to `environ` before containers are started; what it already sets stays as it is.

    Args:
        cache: the folder that holds the caches; the caller makes the folders named by `CACHES` (`make_caches`).
        folder: where the workflow runs, by default the current folder. Outside the checkout, as where another workflow
            uses this one as a module, the checkout is bound into the containers.
        uid: the effective user, the process's own by default.
        proc, dev: the folders /proc and /dev.
    """
    uid = os.geteuid() if uid is None else uid
    variables = {name: str(cache / folder) for name, folder in CACHES.items()}
    variables["PYTHONNOUSERSITE"] = "1"  # the user's own packages do not leak into the containers
    if uid == 0 and "APPTAINER_USERNS" not in environ and not all_capabilities(proc):
        # Started by root, Apptainer requests every capability, and fails if one is denied.
        variables["APPTAINER_NO_PRIVS"] = "1"
    if (dev / "nvidiactl").exists():
        variables["APPTAINER_NV"] = "1"
    if not (folder or Path.cwd()).resolve().is_relative_to(ROOT):
        variables["APPTAINER_BIND"] = str(ROOT)
    return {name: value for name, value in variables.items() if name not in environ}


def build_cache(setting: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the build finds its cache, which containers see wherever it is.

    Args:
        setting: `folder`, relative to the checkout, and `megabytes`.

    Raises:
        UserError: the folder cannot be made.
    """
    folder = (ROOT / Path(setting["folder"]).expanduser()).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"build_cache.folder: {folder} cannot be made ({error.strerror}); name a folder that you may write to."
        ) from None
    variables = {CACHE: str(folder), CACHE_MB: str(setting["megabytes"])}
    bound = list(filter(None, environ.get("APPTAINER_BIND", "").split(",")))
    if folder.is_relative_to(Path.cwd()) or str(folder) in bound:
        return variables
    return variables | {"APPTAINER_BIND": ",".join([*bound, str(folder)])}


def make_caches(environ: Mapping[str, str]) -> None:
    """Make the cache folders that `environ` names: Apptainer wants its own to exist."""
    for name in CACHES:
        if environ.get(name):
            Path(environ[name]).mkdir(parents=True, exist_ok=True)


def capabilities(proc: Path = Path("/proc")) -> int | None:
    """This process's effective capabilities as a bit mask; None if /proc does not tell."""
    try:
        status = (proc / "self" / "status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return None


def all_capabilities(proc: Path = Path("/proc")) -> bool:
    """Whether this process has every capability that the kernel knows; True if /proc does not tell."""
    held = capabilities(proc)
    try:
        last = int((proc / "sys" / "kernel" / "cap_last_cap").read_text())
    except (OSError, ValueError):
        return True
    mask = (1 << (last + 1)) - 1
    return held is None or held & mask == mask


def find_apptainer(path: str | None = None) -> str:
    """The container runtime on PATH. Raises UserError if there is none."""
    for name in ("apptainer", "singularity"):
        program = shutil.which(name, path=path)
        if program:
            return program
    raise UserError(
        "containers need Apptainer, and neither apptainer nor singularity is on PATH. Put `envs/run` before the "
        "command, which installs it for this project alone, or install apptainer 1.2 or later."
    )


def apptainer_version(apptainer: str) -> str:
    """The container runtime's name and version, such as "apptainer 1.4.5"; empty if it does not say."""
    try:
        answer = subprocess.run([apptainer, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip().replace(" version ", " ")


def fuse_hint(uid: int | None = None, dev: Path = Path("/dev")) -> str:
    """What to do if an ordinary user may not mount images; empty where that is not the problem."""
    uid = os.geteuid() if uid is None else uid
    fuse = dev / "fuse"
    if uid == 0 or os.access(fuse, os.R_OK | os.W_OK):
        return ""
    return (
        f" An ordinary user's Apptainer mounts images through {fuse}, which you may not open here: run as root, or "
        f"have the administrator allow it (chmod 666 {fuse}; where it is missing, modprobe fuse)."
    )
