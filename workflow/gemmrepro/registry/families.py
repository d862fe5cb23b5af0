"""Finds families and kernels under kernels/."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.registry.records import Kernel


@dataclass(frozen=True)
class Family:
    """A folder of kernels that share an article, an operation and a baseline."""

    name: str
    title: str
    article: str | None
    summary: str
    figures: tuple[str, ...] = ()


def family_names() -> tuple[str, ...]:
    """Names of the folders under kernels/ that hold a registry, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in paths.KERNELS_DIR.glob("*/family.py")))


def _module(name: str):
    path = paths.KERNELS_DIR / name / "family.py"
    if not path.is_file():
        raise UserError(f"there is no kernel family '{name}'; known families: {', '.join(family_names())}.")
    return _loaded(path)


@cache
def _loaded(path: Path):
    """The module at `path`, loaded once a path, so that a test may put other families in place of these."""
    spec = importlib.util.spec_from_file_location(f"gemmrepro_family_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def family(name: str) -> Family:
    """The family called `name`. Raises UserError if there is none."""
    return _module(name).FAMILY


def kernels(family_name: str | None = None) -> tuple[Kernel, ...]:
    """All kernels of a family in the order of the article, or of every family."""
    names = family_names() if family_name is None else (family_name,)
    return tuple(kernel for name in names for kernel in _module(name).KERNELS)


def kernel(kernel_id: str) -> Kernel:
    """The kernel called `kernel_id` (``ladder.warptile``). Raises UserError, naming near misses."""
    for candidate in kernels():
        if candidate.id == kernel_id:
            return candidate
    import difflib

    known = [candidate.id for candidate in kernels()]
    near = difflib.get_close_matches(kernel_id, known, n=3, cutoff=0.4) or known
    raise UserError(f"there is no kernel '{kernel_id}'; did you mean {', '.join(near)}?")
