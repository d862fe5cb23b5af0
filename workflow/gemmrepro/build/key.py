"""The build key: a hash of everything that determines the machine code; and the compiler that a record names."""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gemmrepro.build.cute_dsl import CuteDsl
from gemmrepro.build.cutile import CuTile
from gemmrepro.build.nvcc import Compiler, Nvcc
from gemmrepro.build.record import Build
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.core.paths import shown
from gemmrepro.core.trees import source_hash
from gemmrepro.registry import Kernel

COMPILERS: Mapping[str, Compiler] = MappingProxyType({"nvcc": Nvcc(), "cute_dsl": CuteDsl(), "cutile": CuTile()})


def compiler(kernel: Kernel) -> Compiler:
    """The compiler of `kernel`, whose record refuses unknown names."""
    return COMPILERS[kernel.code.compiler]


def build_key(kernel: Kernel, toolkit_version: str, installed: Mapping[str, str] | None = None) -> str:
    """The key that measurements of this binary are filed under: 16 hex digits.

    It hashes all that determines the machine code for one architecture: source and headers without comments, flags,
    versions of the toolkit and of packages that compile or are compiled in, and the kernel's id; neither architectures
    nor paths. `installed`: the packages' versions where they are not installed. Raises UserError if a source, a header
    or a package is missing.
    """
    parts: dict[str, Any] = {
        "kernel": kernel.id,
        "source": source_hash(kernel.source_path),
        "headers": [source_hash(path) for path in kernel.header_paths],
        "flags": compiler(kernel).flags(kernel),
        "toolkit": toolkit_version,
    }
    if versions := compiler(kernel).packages(kernel) if installed is None else installed:
        parts["packages"] = dict(versions)
    if kernel.code.ptx:
        parts["ptx"] = kernel.code.ptx
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def keyed(kernel: Kernel, toolkit: Toolkit) -> Build:
    """The record that compiling `kernel` would give, without machine code: recordings need its build key alone."""
    return Build(
        kernel=kernel.id,
        toolkit=toolkit.name,
        toolkit_version=toolkit.version,
        build_key=build_key(kernel, toolkit.version),
        flags=compiler(kernel).flags(kernel),
        sources={shown(path): source_hash(path) for path in (kernel.source_path, *kernel.header_paths)},
        entry=kernel.code.entry,
        advisories=(),
        archs={},
        variants={code.code.entry: {} for code in kernel.codes} if len(kernel.codes) > 1 else {},
        packages=compiler(kernel).packages(kernel),
        compiler=kernel.code.compiler,
    )
