"""The build key: a hash of everything that decides the machine code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from gemmrepro import registry
from gemmrepro.build.compilers import COMPILERS
from gemmrepro.build.nvcc import COMMON_FLAGS, defines, header_packages
from gemmrepro.build.toolkit import _sha256


def packages(kernel: registry.Kernel) -> dict[str, str]:
    """Versions of the Python packages that decide the machine code of `kernel`. Raises UserError if one is missing."""
    if kernel.compiler in COMPILERS:
        return COMPILERS[kernel.compiler].packages(kernel)
    return {package.name: package.version for package in header_packages(kernel)}


def compile_flags(kernel: registry.Kernel) -> tuple[str, ...]:
    """What the compiler of `kernel` is told, architectures aside, that may change the code."""
    if kernel.compiler in COMPILERS:
        return COMPILERS[kernel.compiler].flags(kernel)
    return (*COMMON_FLAGS, *kernel.flags, *defines(kernel))


def build_key(kernel: registry.Kernel, toolkit_version: str, installed: Mapping[str, str] | None = None) -> str:
    """What a measurement of this binary is filed under: 16 hex digits.

    A hash of all that decides the machine code for one architecture: source, headers, flags, versions of the toolkit
    and of packages that compile or are compiled in, and the kernel's id. Neither the list of architectures nor any path
    is part of it, so that a build for one GPU more, or in another folder, is still the same build. `installed` gives
    the packages' versions, as a build record does, where the packages themselves are not.
    """
    parts = {
        "kernel": kernel.id,
        "source": _sha256(kernel.source_path),
        "headers": [_sha256(path) for path in kernel.header_paths],
        "flags": compile_flags(kernel),
        "toolkit": toolkit_version,
    }
    if used := packages(kernel) if installed is None else installed:
        parts["packages"] = dict(used)
    if kernel.ptx:
        parts["ptx"] = kernel.ptx
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
