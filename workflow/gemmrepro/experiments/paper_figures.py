"""The paper's own figures: which there are, and on whose page each stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FOLDER = "paper"
"""Their folder in ``results/figures``, beside those of the families."""

FINDINGS: Mapping[str, tuple[str, ...]] = {
    "statements": (),
    "articles": (),
    "stages": (),
    "row": (),
    "ladder": ("ladder",),
    "shares": ("ladder",),
    "issuing": ("ladder",),
    "hopper": ("hopper",),
    "mma_sync": ("ada", "cute"),
    "accumulation": ("ada",),
    "types": ("cutile",),
    "slices": ("ozaki",),
    "fp64_frontier": ("ozaki",),
    "residues": ("crt",),
    "gains": ("memory", "pytorch"),
}
"""The figures in the order of the paper, and the families without which there is none."""

STATED = ("ladder", "ada", "cute", "cutile", "memory", "pytorch", "ozaki")
"""The families of an article, of whose statements a figure compares published and measured, on the family's page."""


REGIMES = ("hopper", "crt")
"""The families whose kernels are measured in the regimes, too, with a figure of that on the family's page."""


def names(families: Sequence[str]) -> list[str]:
    """The figures that can be drawn of these families."""
    return [name for name, needed in FINDINGS.items() if set(needed) <= set(families)]


def stated_in(family: str) -> str:
    """What the figure of a family's statements is called."""
    return f"stated_{family}"


def on_page_of(family: str) -> list[str]:
    """The figures of the paper's own that stand on a family's page."""
    stated = [stated_in(family)] if family in STATED else []
    return [*stated, *([f"regimes_{family}"] if family in REGIMES else [])]


def drawn(families: Sequence[str]) -> list[str]:
    """The figures of the paper, and those of the statements and of the regimes of these families."""
    return [*names(families), *(name for family in families for name in on_page_of(family))]
