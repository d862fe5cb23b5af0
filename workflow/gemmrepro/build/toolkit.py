"""The CUDA toolkit on PATH, and fat binaries: their targets, and packing of images that another compiler made."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.core import names
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

_TOOL_PACKAGES = {
    "nvcc": "the CUDA compiler (package nvidia-cuda-nvcc)",
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm, which cuobjdump calls",
}


@dataclass(frozen=True)
class Toolkit:
    """The CUDA toolkit on PATH: "cuda13", "13.0.88", and the architectures that it compiles for ("80", "90a")."""

    name: str
    version: str
    archs: frozenset[str]


def find_toolkit(name: str) -> Toolkit:
    """The toolkit called `name` ("cuda12", "cuda13") on PATH.
    Raises UserError if nvcc, cuobjdump or nvdisasm is missing, or nvcc is of another major version."""
    if name not in names.TOOLKITS:
        raise UserError(f"there is no toolkit '{name}'; known toolkits: {', '.join(names.TOOLKITS)}.")
    container = "run Snakemake with --use-singularity, which brings the toolkit in a container, or put it on PATH"
    for tool, package in _TOOL_PACKAGES.items():
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not on PATH, and {name} builds need it ({package}); {container}.")
    printed = run(["nvcc", "--version"]).stdout
    release = re.search(r"release [\d.]+, V([\d.]+)", printed)
    if not release:
        raise UserError(f"nvcc --version printed no version ({printed.strip()[:200]!r}); {container}.")
    version = release[1]
    if version.split(".", 1)[0] != name.removeprefix("cuda"):
        raise UserError(
            f"the nvcc on PATH ({shutil.which('nvcc')}) is CUDA {version}, and {name} needs CUDA "
            f"{name.removeprefix('cuda')}; {container}."
        )
    archs = run(["nvcc", "--list-gpu-code"]).stdout.split()
    return Toolkit(name, version, frozenset(arch.removeprefix("sm_") for arch in archs))


def capability(arch: str) -> tuple[int, str]:
    """Number and suffix of an architecture, as a sort key: (90, "a") for "sm_90a"."""
    digits = arch.removeprefix("sm_")
    number = digits.rstrip("af")
    return int(number), digits[len(number) :]


def relative(path: Path) -> str:
    """`path` relative to the repository's root, where nvcc runs; unchanged if it is outside."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def run(
    command: list[str], check: bool = True, env: dict[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a tool of the toolkit in `folder`. Raises UserError if it fails and `check` is set."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    if check and done.returncode:
        message = (done.stderr or done.stdout).strip()[-800:]
        raise UserError(f"{command[0]} failed ({done.returncode}): {message}; check the toolkit on PATH.")
    return done


def gencode(archs: Sequence[str], ptx: str = "") -> list[str]:
    """nvcc's flags for machine code for `archs` ("80", "90a"), from the PTX of `ptx` or each its own.
    PTX for the newest portable architecture is added."""
    flags = [f"-gencode=arch=compute_{ptx or arch},code=sm_{arch}" for arch in archs]
    if newest := portable(archs):
        virtual = ptx or newest
        flags.append(f"-gencode=arch=compute_{virtual},code=compute_{virtual}")
    return flags


def portable(archs: Sequence[str]) -> str | None:
    """The architecture whose PTX goes into the binary: the last one that is not architecture-specific.
    The driver of a newer GPU compiles this PTX. PTX for an architecture-specific target (90a) runs on no other GPU."""
    return next((arch for arch in reversed(archs) if arch.isdigit()), None)


def assemble(images: Mapping[str, Path], binary: Path) -> str:
    """Pack PTX, which is assembled, or a cubin for each architecture ("90a") into a fat binary; returns ptxas's log.
    Raises UserError if ptxas or fatbinary is missing, or ptxas refuses the PTX."""
    for tool in ("ptxas", "fatbinary"):
        if shutil.which(tool) is None:
            raise UserError(f"{tool} is not on PATH; it comes with nvcc (package nvidia-cuda-nvcc): put both there.")
    log, contents = "", []
    for arch, image in images.items():
        cubin = image.with_suffix(".cubin")
        if image != cubin:
            done = run(["ptxas", "-v", f"-arch=sm_{arch}", "-m64", str(image), "-o", str(cubin)])
            log += done.stdout + done.stderr
        contents.append(f"kind=elf,sm={arch},file={cubin}")
    if newest := portable([arch for arch, image in images.items() if image.suffix == ".ptx"]):
        contents.append(f"kind=ptx,sm={newest},file={images[newest]}")
    run(["fatbinary", f"--create={binary}", "-64", "-compress=false", *(f"--image3={image}" for image in contents)])
    return log
