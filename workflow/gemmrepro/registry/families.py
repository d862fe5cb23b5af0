"""Looks up families and kernels under kernels/."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.registry.records import Kernel

FIGURES = (
    *("climb", "ratio", "sizes", "tiles"),
    *("tile_layout", "copy_layout", "mma_layout", "pipeline"),
)
"""Figures of a family's measurements, layouts and stages, as `Family.figures` names them; `gemmrepro.figures`."""


@dataclass(frozen=True)
class Family:
    """A folder of kernels around one article or question.

    Attributes:
        name: the folder's name under kernels/.
        title: the heading of its chapter.
        article: the article's folder in articles/; None for a family without one.
        summary: one sentence on what is computed, and how.
        figures: names of the figures of its measurements, in order; see FIGURES.
        main_dtype: input type of its main ladder; by default that of its first GEMM with a baseline.
    """

    name: str
    title: str
    article: str | None
    summary: str
    figures: tuple[str, ...] = ()
    main_dtype: str = ""


def family_names() -> tuple[str, ...]:
    """Names of the folders under kernels/ that contain a family.py, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in paths.KERNELS_DIR.glob("*/family.py")))


def family_module(name: str) -> ModuleType:
    """The module kernels/<name>/family.py. Raises UserError if there is none."""
    path = paths.KERNELS_DIR / name / "family.py"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        raise UserError(
            f"there is no kernel family '{' '.join(name.split())}'; known families: {', '.join(family_names())}."
        )
    return _loaded(path)


@cache
def _loaded(path: Path) -> ModuleType:
    """The module at `path`, loaded once per path, so that tests can substitute other families."""
    spec = importlib.util.spec_from_file_location(f"gemmrepro_family_{path.parent.name}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def family(name: str) -> Family:
    """The family called `name`. Raises UserError if there is none."""
    record: Family = family_module(name).FAMILY
    return record


def kernels(family_name: str | None = None) -> tuple[Kernel, ...]:
    """All kernels of a family, or of all families, in the order of KERNELS."""
    names = family_names() if family_name is None else (family_name,)
    return tuple(kernel for name in names for kernel in family_module(name).KERNELS)


def kernel(kernel_id: str) -> Kernel:
    """The kernel called `kernel_id` (``ladder.warptile``). Raises UserError with similar ids if there is none."""
    for candidate in kernels():
        if candidate.id == kernel_id:
            return candidate
    known = [candidate.id for candidate in kernels()]
    near = difflib.get_close_matches(kernel_id, known, n=3, cutoff=0.4) or known
    raise UserError(f"there is no kernel '{' '.join(kernel_id.split())}'; did you mean {', '.join(near)}?")
