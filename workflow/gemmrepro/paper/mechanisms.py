"""Why statements do not hold: the mechanisms of kernels/mechanisms.yaml, and what each explains in this run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from gemmrepro.core import paths, yaml_files
from gemmrepro.judge.claim import ANYWHERE, ARTICLE, LINKED
from gemmrepro.judge.rules import NOT, NOT_COMPARABLE, PARTLY
from gemmrepro.paper.claims import ClaimView

FILE = "mechanisms.yaml"
SCHEMA = "mechanisms.schema.yaml"


@dataclass(frozen=True)
class Mechanism:
    """A cause that several claims share; `claims` are patterns of claim ids.

    `capabilities` are the compute capabilities on which it is at work; empty for any.
    """

    id: str
    title: str
    text: str
    claims: tuple[str, ...]
    capabilities: tuple[str, ...] = ()

    def explains(self, claim: str) -> bool:
        """Whether the claim with this id falls under it."""
        return any(fnmatchcase(claim, pattern) for pattern in self.claims)


@dataclass(frozen=True)
class MechanismView:
    """A mechanism and the claims that it explains here, in the order of the register."""

    title: str
    text: str
    claims: tuple[ClaimView, ...]

    @property
    def articles(self) -> list[str]:
        return sorted({claim.article for claim in self.claims})


@dataclass(frozen=True)
class MechanismsView:
    """The mechanisms at work in this run, the one with most claims first, and the claims that none explains."""

    mechanisms: tuple[MechanismView, ...]
    unexplained: tuple[ClaimView, ...]


def mechanisms(path: Path = paths.KERNELS_DIR / FILE) -> tuple[Mechanism, ...]:
    """Every mechanism. Raises UserError if the file is missing or wrong."""
    return _read(path)


@cache
def _read(path: Path) -> tuple[Mechanism, ...]:
    entries = yaml_files.read(path, SCHEMA)["mechanisms"]
    return tuple(
        Mechanism(each["id"], each["title"], each["text"], tuple(each["claims"]), tuple(each.get("capabilities", ())))
        for each in entries
    )


def explained(claims: Iterable[ClaimView], causes: Sequence[Mechanism], capability: str = "") -> MechanismsView:
    """The articles' statements that do not hold, or only in part, and are not wrong on any GPU, by mechanism.

    Only by those that are at work on a GPU of compute capability `capability`.
    """
    claims = tuple(claims)
    wrong = {
        name
        for claim in claims
        if claim.correction and claim.correction["class"] in ANYWHERE
        for name in (claim.id, *claim.correction.get("also", ()))
    }
    differing = [
        claim
        for claim in claims
        if claim.register in (ARTICLE, LINKED)
        and claim.verdict in (NOT, NOT_COMPARABLE, PARTLY)
        and claim.id not in wrong
    ]
    views = [
        MechanismView(cause.title, cause.text, tuple(claim for claim in differing if cause.explains(claim.id)))
        for cause in causes
        if not cause.capabilities or capability in cause.capabilities
    ]
    named = {claim.id for view in views for claim in view.claims}
    return MechanismsView(
        tuple(sorted((view for view in views if view.claims), key=lambda view: -len(view.claims))),
        tuple(claim for claim in differing if claim.id not in named),
    )
