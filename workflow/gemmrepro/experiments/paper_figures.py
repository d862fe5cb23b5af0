"""The figures of the paper itself, and those of them that stand on a family's page; nothing is drawn to know them.

``kernels/<family>/figures.py`` defines a function for each figure of its own, and in ``PAPER`` names those that belong
to the whole paper, each with the other families that it needs.
"""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.experiments import tables
from gemmrepro.registry import family_names, ladders

FOLDER = "paper"
"""Their folder in ``results/figures``, beside those of the families."""

WHOLE = ("headlines", "row")
"""The figures that need no family, in their order."""

PICTURE = f"{FOLDER}/{WHOLE[0]}"
"""The one that is a picture (PNG) too, which stands for the report where a link to it is shown."""

FILE = "figures.py"


def path_of(family: str) -> Path:
    """Where a family defines its figures; the file need not be there."""
    return paths.KERNELS_DIR / family / FILE


@cache
def _tree(path: Path, _changed: int) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def defined(path: Path) -> tuple[str, ...]:
    """The public functions of a family's figures.py, each of which draws a figure."""
    tree = _tree(path, path.stat().st_mtime_ns)
    return tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_")


def of_rungs(family: str) -> tuple[str, ...]:
    """Names for `Family.figures`: the figure of the rungs, and the functions of the family's figures.py."""
    path = path_of(family)
    return ("ratio", *(defined(path) if path.is_file() else ()))


def _of(family: str) -> dict[str, tuple[str, ...]]:
    """The paper's figures that a family defines, each with the families that it needs, its own first."""
    path = path_of(family)
    if not path.is_file():
        return {}
    for node in _tree(path, path.stat().st_mtime_ns).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "PAPER":
            declared: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            if missing := declared.keys() - set(defined(path)):
                raise UserError(f"{path} defines no figure {', '.join(sorted(missing))}, which PAPER names.")
            return {name: (family, *others) for name, others in declared.items()}
    return {}


def of_families(families: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """The paper's figures that each of the families defines, of those that these families allow."""
    return {
        family: {name: needed for name, needed in _of(family).items() if set(needed) <= set(families)}
        for family in families
    }


def needed(families: Sequence[str] | None = None) -> Mapping[str, tuple[str, ...]]:
    """The paper's figures of these families, by default of all, each with the families that it shows, if any."""
    own = of_families(family_names() if families is None else families)
    return dict.fromkeys(WHOLE, ()) | {name: shown for figures in own.values() for name, shown in figures.items()}


def names(families: Sequence[str]) -> list[str]:
    """The paper's figures that can be drawn of these families, in their order."""
    return list(needed(families))


def on_page_of(family: str) -> list[str]:
    """The figures of the paper's own that stand on a family's page: of an article's statements, and of the regimes."""
    stated = [f"stated_{family}"] if tables.declared(family) else []
    return [*stated, *([f"regimes_{family}"] if ladders.compared(family) else [])]


def drawn(families: Sequence[str]) -> list[str]:
    """The figures of the paper, and those of the statements and of the regimes of these families."""
    return [*names(families), *(name for family in families for name in on_page_of(family))]
