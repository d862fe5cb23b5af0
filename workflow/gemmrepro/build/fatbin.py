"""Fat binaries: their targets, and packing of images that another compiler made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro.build.toolkit import run
from gemmrepro.errors import UserError


def gencode(archs: Sequence[str], ptx: str = "") -> list[str]:
    """nvcc's flags for machine code for `archs` ("80", "90a") and PTX for the newest portable one.

    Args:
        ptx: the architecture whose PTX all machine code is assembled from; by default each uses its own.
    """
    flags = [f"-gencode=arch=compute_{ptx or arch},code=sm_{arch}" for arch in archs]
    if newest := portable(archs):
        virtual = ptx or newest
        flags.append(f"-gencode=arch=compute_{virtual},code=compute_{virtual}")
    return flags


def portable(archs: Sequence[str]) -> str | None:
    """The architecture whose PTX goes into the binary: the last one that is not architecture-specific.

    The driver of a newer GPU compiles this PTX. PTX for an architecture-specific target (90a) runs on no other GPU.
    """
    return next((arch for arch in reversed(archs) if arch.isdigit()), None)


def assemble(images: Mapping[str, Path], binary: Path) -> str:
    """Assemble PTX files into a fat binary as nvcc would, and return ptxas's log. Cubins are packed unchanged.

    Args:
        images: a file of PTX or a cubin by architecture ("90a").

    Raises:
        UserError: ptxas or fatbinary is missing, or ptxas refuses the PTX.
    """
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
