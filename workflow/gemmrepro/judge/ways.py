"""What a claim is about (its register) and how it is judged (its way), with the rule of each."""

from __future__ import annotations

from gemmrepro.judge.carrying import MODEL, SHARE
from gemmrepro.judge.claim import ARTICLE, BUILD, LINKED, PROJECT, Claim
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.metrics.calculated import counted

MEASURED, COUNT, CONSISTENT, COVERED, NONE = "measured", "count", "consistent", "covered", "none"

_REGISTERS = {
    ARTICLE: "A sentence, a table or a figure of an article states it.",
    LINKED: "A repository, a notebook or slides that an article links or quotes state it, and the article does not.",
    BUILD: (
        "A fact of the machine code that holds by construction, because the kernels are written, and gated, to satisfy "
        "it: it says that the article's program is what runs, not that the article is right."
    ),
    PROJECT: "This project's own finding, which no article states.",
}

_WAYS = {
    MEASURED: "The value is measured here and compared with the published one, by the rule of its metric.",
    SHARE: (
        "The same share of the chip is expected. There it is the published value over a rate of the article's chip, "
        "by its data sheet; here the measured value over that rate of this GPU, by a measured ceiling or else its data "
        "sheet. For a time the relation is inverted."
    ),
    MODEL: (
        "The published ratio times the quotient of two rates here, over that quotient on the article's chip, is "
        "expected; the two rates were chosen before measuring."
    ),
    COUNT: (
        "Counted or calculated from machine code, sources or a printed formula; no GPU is needed. Integer counts are "
        "compared exactly."
    ),
    CONSISTENT: "Numbers of the article are held against each other; nothing is measured.",
    COVERED: "Says in other units what another claim judges, so it is shown and not counted.",
    NONE: "No run on this hardware can test it; the claim says why.",
}

ON_ANY_GPU = (COUNT, CONSISTENT, COVERED, NONE)
"""Ways whose verdicts are the same on every GPU."""

REGISTERS = tuple(_REGISTERS)
WAYS = tuple(_WAYS)


def way_of(claim: Claim) -> str:
    """How a claim is judged: a key of WAYS."""
    if claim.covered_by:
        return COVERED
    kind = claim.transfer["kind"]
    if kind in (SHARE, MODEL, NONE):
        return kind
    return MEASURED if counted(claim) else METRICS[claim.metric].way


def register_rules() -> list[tuple[str, str]]:
    """Every register and what belongs to it."""
    return list(_REGISTERS.items())


def way_rules() -> list[tuple[str, str]]:
    """Every way of judging and its rule."""
    return list(_WAYS.items())
