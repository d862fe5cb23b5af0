"""The build key: a hash of everything that decides the machine code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gemmrepro.build.compilers import compiler
from gemmrepro.build.toolkit import sha256
from gemmrepro.registry import Kernel


def build_key(kernel: Kernel, toolkit_version: str, installed: Mapping[str, str] | None = None) -> str:
    """What a measurement of this binary is filed under: 16 hex digits.

    A hash of all that decides the machine code for one architecture: source, headers, flags, versions of the toolkit
    and of packages that compile or are compiled in, and the kernel's id. Neither the list of architectures nor any path
    is part of it, so that a build for one GPU more, or in another folder, is still the same build.

    Args:
        installed: the packages' versions, as a build record has them, where the packages themselves are not installed.

    Raises:
        UserError: a source, a header or a package is missing.
    """
    parts: dict[str, Any] = {
        "kernel": kernel.id,
        "source": sha256(kernel.source_path),
        "headers": [sha256(path) for path in kernel.header_paths],
        "flags": compiler(kernel).flags(kernel),
        "toolkit": toolkit_version,
    }
    if versions := compiler(kernel).packages(kernel) if installed is None else installed:
        parts["packages"] = dict(versions)
    if kernel.code.ptx:
        parts["ptx"] = kernel.code.ptx
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
