"""The environment variables that containers need, however the workflow is started, and the container runtime."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from gemmrepro.build.cache import CACHE, CACHE_MB
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

WSL = Path("/usr/lib/wsl")
"""Where WSL2 keeps the driver. Apptainer's --nv brings libcuda.so from there, but not what that loads."""

PRIVATE = ROOT / ".envs" / "apptainer"
"""The Apptainer that envs/run installs."""

OLDEST_RUNTIME = {"apptainer": (1, 2), "singularity": (3, 8)}
"""The oldest usable version of each program that runs containers; SingularityCE begins with 3.8."""

ELSEWHERE = ("APPTAINERENV_", "SINGULARITYENV_")
"""Beginnings of variables that Apptainer hands on without them."""

FOREIGN = re.compile(
    "CC|CXX|CPP|CUDAHOSTCXX|(C|CXX|CPP|LD)FLAGS|(NVCC|GCC)_.*|CPATH|(C|CPLUS)_INCLUDE_PATH|(LIBRARY|COMPILER)_PATH"
    "|CUDA_(HOME|PATH|ROOT|INC_PATH)|TRITON_PTXAS_PATH"
    "|LD_(?!LIBRARY_PATH$).*|GLIBC_TUNABLES|MALLOC_.*|GCONV_PATH|LOCPATH"
    "|PYTHON(?!PATH$|UTF8$).*|NPY_.*|MPLBACKEND|MATPLOTLIBRC"
    "|BASH_ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|POSIXLY_CORRECT"
)
"""Variables of the host that would change what an image's programs do: compilers, flags, libraries, shell functions."""

REPLACED = re.compile("(PREPEND_|APPEND_)?PATH|LD_LIBRARY_PATH|PYTHONPATH|PYTHONUTF8")
"""Variables that Apptainer does not pass on, or that the images are given anew, unless named with `ELSEWHERE`."""


def foreign(environ: Mapping[str, str]) -> list[str]:
    """The names of `environ` that containers must not see."""
    inside = {name: name.removeprefix(ELSEWHERE[0]).removeprefix(ELSEWHERE[1]) for name in environ}
    return [name for name, own in inside.items() if FOREIGN.fullmatch(own) or (own != name and REPLACED.fullmatch(own))]


def in_containers(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables by which containers, and they alone, get `variables`."""
    return {f"{prefix}{name}": value for prefix in ELSEWHERE for name, value in variables.items()}


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
    SingularityCE reads Apptainer's own under names that begin with SINGULARITY_. `cache` holds the caches
    (`make_caches`). A checkout outside `folder`, where the workflow runs, is bound as well."""
    uid = os.geteuid() if uid is None else uid
    # The user's own packages do not leak into the containers.
    variables = {"PYTHONNOUSERSITE": "1"} | {name: str(cache / place) for name, place in CACHES.items()}
    if uid == 0 and "APPTAINER_USERNS" not in environ and not all_capabilities(proc):
        # Started by root, Apptainer requests every capability, and fails if one is denied.
        variables["APPTAINER_NO_PRIVS"] = "1"
    bound = [] if (folder or Path.cwd()).resolve().is_relative_to(ROOT) else [str(ROOT)]
    if (dev / "nvidiactl").exists():
        variables["APPTAINER_NV"] = "1"
    elif (dev / "dxg").exists():  # WSL2
        variables |= {"APPTAINER_NV": "1", "APPTAINER_CONTAINLIBS": f"{WSL}/lib/libdxcore.so"}
        bound.append(str(WSL))
    added: dict[str, str] = {}
    for names, value in ((_names(name), value) for name, value in variables.items()):
        given = next((environ[name] for name in names if name in environ), value)
        added |= {name: given for name in names if name not in environ}
    return added | bind(environ, *bound)


def _names(name: str) -> tuple[str, ...]:
    """A variable of Apptainer's by its name and SingularityCE's; another one by its own."""
    twin = name.replace("APPTAINER_", "SINGULARITY_", 1)
    return (name,) if twin == name else (name, twin)


def bind(environ: Mapping[str, str], *folders: str) -> dict[str, str]:
    """Variables by which containers see `folders` beside those that `environ` binds already; none if it does."""
    names = _names("APPTAINER_BIND")
    bound = next((environ[name] for name in names if environ.get(name)), "").split(",")
    missing = [folder for folder in folders if folder not in bound]
    return dict.fromkeys(names, ",".join(filter(None, [*bound, *missing]))) if missing else {}


def build_cache(setting: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the build finds its cache, which containers see wherever it is.
    `setting` has a `folder`, relative to the checkout, and `megabytes`. Raises UserError if it cannot be made."""
    try:
        folder = (ROOT / Path(setting["folder"]).expanduser()).resolve()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError) as error:  # no such user's home; a NUL
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise UserError(
            f"build_cache.folder: {setting['folder']!r} cannot be made ({why}); name a folder that you may write to."
        ) from None
    outside = [] if folder.is_relative_to(Path.cwd()) else [str(folder)]
    return {CACHE: str(folder), CACHE_MB: str(setting["megabytes"])} | bind(environ, *outside)


def make_caches(environ: Mapping[str, str]) -> None:
    """Make the cache folders that `environ` names: Apptainer wants its own to exist."""
    for name in CACHES:
        if environ.get(name):
            Path(environ[name]).mkdir(parents=True, exist_ok=True)


def capabilities(proc: Path = Path("/proc")) -> int | None:
    """This process's effective capabilities as a bit mask; None if /proc does not tell."""
    with contextlib.suppress(OSError):
        if held := re.search(r"^CapEff:\s*(\w+)$", (proc / "self" / "status").read_text(), re.MULTILINE):
            return int(held[1], 16)
    return None


def all_capabilities(proc: Path = Path("/proc")) -> bool:
    """Whether this process has every capability that the kernel knows; True if /proc does not tell."""
    held = capabilities(proc)
    with contextlib.suppress(OSError, ValueError):
        mask = (2 << int((proc / "sys" / "kernel" / "cap_last_cap").read_text())) - 1
        return held is None or held & mask == mask
    return True


def find_apptainer(path: str | None = None) -> str:
    """The container runtime: the one on PATH, or the private one where that is too old or GEMMREPRO_APPTAINER asks.
    Raises UserError if there is none of a version that will do."""
    programs = [
        shutil.which("apptainer", path=path) or shutil.which("singularity", path=path),
        shutil.which("apptainer", path=str(PRIVATE / "bin")),
    ]
    if os.environ.get("GEMMREPRO_APPTAINER"):
        programs.reverse()
    problems = []
    for program in filter(None, programs):
        problem = unsuited(apptainer_version(program))
        if not problem:
            return program
        problems.append(f"{program} {problem}")
    reason = "; ".join(problems) or "neither apptainer nor singularity is on PATH"
    raise UserError(
        f"containers need Apptainer, and {reason}. Put `envs/run` before the command, which installs it for this "
        "project alone, or install apptainer 1.2 or later."
    )


def unsuited(version: str) -> str:
    """Why a container runtime of that `apptainer_version` will not do; "" if it will."""
    parsed = re.match(r"(?:(\S+) )?v?(\d+)\.(\d+)", version)
    if not parsed:
        return "does not say its version"
    oldest = OLDEST_RUNTIME["apptainer" if parsed[1] == "apptainer" else "singularity"]
    return "" if (int(parsed[2]), int(parsed[3])) >= oldest else f"is {version}, older than {oldest[0]}.{oldest[1]}"


def use_apptainer(environ: MutableMapping[str, str]) -> None:
    """Have Snakemake, which takes the first on PATH, start containers with `find_apptainer`; say what may be amiss."""
    program = find_apptainer(environ.get("PATH"))
    if shutil.which(Path(program).name, path=environ.get("PATH")) != program:
        environ["PATH"] = os.pathsep.join([str(Path(program).parent), *filter(None, [environ.get("PATH")])])
    # An Apptainer that is installed setuid needs no FUSE, nor does a login node.
    if hint := fuse_hint():
        print(f"gemmrepro: images may fail to start here.{hint}", file=sys.stderr)


def apptainer_version(apptainer: str) -> str:
    """The container runtime's name and version, such as "apptainer 1.4.5"; empty if it does not say."""
    try:
        answer = subprocess.run([apptainer, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip().replace(" version ", " ")


def fuse_hint(uid: int | None = None, dev: Path = Path("/dev")) -> str:
    """Advice if an ordinary user may not mount images; empty where that is not the problem."""
    uid = os.geteuid() if uid is None else uid
    fuse = dev / "fuse"
    if uid == 0 or os.access(fuse, os.R_OK | os.W_OK):
        return ""
    return (
        f" An ordinary user's Apptainer mounts images through {fuse}, which you may not open here: run as root, or "
        f"have the administrator allow it (chmod 666 {fuse}; where it is missing, modprobe fuse)."
    )
