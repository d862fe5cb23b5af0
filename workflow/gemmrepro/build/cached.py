"""Builds through a cache: what was compiled once is not compiled again, whichever checkout asks.

An entry is filed under everything that determines its three files: the build key, the targets, what the build reads of
the record, this package's code and the versions of the tools.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import cache

from gemmrepro.build.cache import Cache
from gemmrepro.build.compile import Compiled, wanted_archs
from gemmrepro.build.key import build_key
from gemmrepro.build.record import Build
from gemmrepro.build.toolkit import Toolkit, run
from gemmrepro.core import dependencies
from gemmrepro.core.files import json_text
from gemmrepro.core.trees import digest
from gemmrepro.registry import Kernel, keys

CACHE, CACHE_MB = "GEMMREPRO_BUILD_CACHE", "GEMMREPRO_BUILD_CACHE_MB"
"""Environment variables with the folder of the cache and its limit in MB."""

OF_COMPILER = {
    "cute_dsl": ("gemmrepro.build.cute_dsl", "gemmrepro.build.cute_dsl_trace"),
    "cutile": ("gemmrepro.build.cutile", "gemmrepro.build.cutile_export"),
}
"""Modules that serve one compiler alone: an edit of theirs recompiles only its kernels."""

_TOOLS = ("nvcc", "ptxas", "cuobjdump", "nvdisasm", "g++")

FATBIN, SASS, RECORD = ".fatbin", ".sass", ".json"


def found(key: str, kept: Cache) -> dict[str, bytes] | None:
    """The files of a build by suffix; None if the cache has none."""
    files = kept.get(key)
    return files if files and set(files) == {FATBIN, SASS, RECORD} else None


def files_of(compiled: Compiled) -> dict[str, bytes]:
    """The files of a build by suffix."""
    return {FATBIN: compiled.fatbin, SASS: compiled.sass.encode(), RECORD: written(compiled.record)}


def written(record: Build) -> bytes:
    """A build record as its file holds it."""
    return json_text(record.to_json()).encode()


def entry_key(kernel: Kernel, toolkit: Toolkit, archs: Sequence[str]) -> str:
    """What a build is filed under. Raises UserError if `archs` do not suit the kernel, or if its source is missing."""
    parts = [
        build_key(kernel, toolkit.version),
        toolkit.name,
        wanted_archs(kernel, toolkit, archs),
        keys.compiled(kernel),
        code_of(kernel.code.compiler),
        _versions(),
    ]
    return digest(json.dumps([kernel.id, *parts]))


@cache
def code_of(*compilers: str) -> str:
    """A hash of the build's code for kernels of these compilers.

    The registry's counts by what it says of a kernel (`keys.compiled`), not by itself.
    """
    others = [module for name, modules in OF_COMPILER.items() if name not in compilers for module in modules]
    return dependencies.code_hash("gemmrepro.build.compile", without=frozenset({"gemmrepro.registry", *others}))


@cache
def _versions() -> list[str]:
    """What the tools on PATH say of their versions; nothing for one that is missing."""
    found = [tool for tool in _TOOLS if shutil.which(tool)]
    return [f"{tool}: {run([tool, '--version'], check=False).stdout}" for tool in found]
