"""What a claim is about (its register) and how it is judged (its way), with the rule of each, and tallies by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gemmrepro.core import schemas
from gemmrepro.judge.carrying import MODEL, SHARE
from gemmrepro.judge.claim import ANYWHERE, ARTICLE, Claim
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.metrics.calculated import counted
from gemmrepro.judge.rules import RIGHT

MEASURED, COUNT, CONSISTENT, COVERED, NONE = "measured", "count", "consistent", "covered", "none"

REGISTERS, WAYS = (schemas.words("verdicts.schema.yaml", name) for name in ("register", "way"))
"""Each word and its rule."""

ON_ANY_GPU = (COUNT, CONSISTENT, COVERED, NONE)
"""Ways whose verdicts are the same on every GPU."""


def way_of(claim: Claim) -> str:
    """How a claim is judged: a key of WAYS."""
    if claim.covered_by:
        return COVERED
    kind = claim.transfer["kind"]
    if kind in (SHARE, MODEL, NONE):
        return kind
    return MEASURED if counted(claim) else METRICS[claim.metric].way


def tallies(claims: Sequence[Mapping[str, Any]]) -> str:
    """A table of all claims by register and verdict, and one of the articles' statements by way."""
    every = pd.DataFrame(claims, columns=["register", "way", "verdict"])
    stated = every[every["register"] == ARTICLE]
    tables = [(key, of) for key, of in (("register", every), ("way", stated)) if len(of)]
    return "\n\n".join(
        pd.crosstab(of[key], of["verdict"], margins=True, margins_name="claims").to_string() for key, of in tables
    )


def unfounded(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the claims that are marked as wrong on any GPU although the statement holds."""
    marked = [claim for claim in claims if claim["correction"] and claim["correction"]["class"] in ANYWHERE]
    return [claim["id"] for claim in marked if claim["verdict"] in RIGHT]
