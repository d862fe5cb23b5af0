"""Draws the paper's own figures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmrepro.experiments.paper_figures import REGIMES, STATED, names, stated_in
from gemmrepro.figures.findings import (
    accumulation,
    articles,
    frontier,
    gains,
    hopper,
    issuing,
    ladder,
    mma_sync,
    regimes,
    residues,
    row,
    shares,
    slices,
    stages,
    stated,
    statements,
    types,
)
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.style import Drawing, set_style

PAINTERS: Mapping[str, Callable[[Inputs], Drawing]] = {
    "statements": statements.draw,
    "articles": articles.draw,
    "stages": stages.draw,
    "row": row.draw,
    "ladder": ladder.draw,
    "shares": shares.draw,
    "issuing": issuing.draw,
    "hopper": hopper.draw,
    "mma_sync": mma_sync.draw,
    "accumulation": accumulation.draw,
    "types": types.draw,
    "slices": slices.draw,
    "fp64_frontier": frontier.draw,
    "residues": residues.draw,
    "gains": gains.draw,
}


def draw(inputs: Inputs) -> dict[str, Drawing]:
    """The figures of the families that there are rows of."""
    set_style()
    shown = list(inputs.measured)
    own = {name: PAINTERS[name](inputs) for name in names(shown)}
    for family in shown:
        if family in STATED:
            own[stated_in(family)] = stated.draw(inputs, family)
        if family in REGIMES:
            own[f"regimes_{family}"] = regimes.draw(inputs, family)
    return own
