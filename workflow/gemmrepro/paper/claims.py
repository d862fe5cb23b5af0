"""Claims with their verdicts as the page shows them: ``verdicts.json`` read into records, counted and compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core.files import read_json
from gemmrepro.core.text import as_published
from gemmrepro.judge.claim import ANYWHERE, ARTICLE
from gemmrepro.judge.rules import DECIDED, RIGHT, UNDECIDED, VERDICTS, WRONG, difference
from gemmrepro.judge.ways import REGISTERS
from gemmrepro.measure.regimes import IN_TURN
from gemmrepro.paper.text import anchor, number

Place = Callable[[str, str], str | None]
"""The id of the row that a key of verdicts.json names, given the claim's family and the key."""


def nowhere(family: str, key: str) -> None:
    """The `Place` of a report without rows."""


@dataclass(frozen=True)
class PublishedView:
    """A figure in print."""

    value: float
    unit: str
    metric: str
    hardware: str
    place: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> PublishedView | None:
        """From a row of published.csv; None without one."""
        return None if row is None else cls(row["value"], row["unit"], row["metric"], row["hardware"], row["place"])

    @property
    def text(self) -> str:
        """The figure with its unit, as the article prints it."""
        if self.metric in ("numerics", "negative_result"):
            return "in words"
        return as_published(self.value) + (f" {self.unit}" if self.unit not in ("", "ratio", "count") else "")


@dataclass(frozen=True)
class EvidenceRow:
    """What a value was read from, by its name in verdicts.json; `anchor` is its id in the report, if it has one."""

    key: str
    anchor: str | None


@dataclass(frozen=True)
class MeasuredView:
    """A value that a claim was judged on, its rows, and the id of the first that the report shows."""

    value: float
    unit: str
    low: float
    high: float
    rows: tuple[EvidenceRow, ...]
    link: str

    @property
    def text(self) -> str:
        """The value without its unit; counts are exact."""
        counted = self.low == self.high and float(self.value).is_integer() and abs(self.value) < 1e9
        return as_published(self.value) if counted or self.unit == "instructions" else number(self.value)


@dataclass(frozen=True)
class ClaimView:
    """One claim and its verdict; `regime` is the one it was judged in, `beside` its value in the others."""

    id: str
    family: str
    article: str
    where: str
    statement: str
    register: str
    way: str
    covered_by: str | None
    correction: Mapping[str, Any] | None
    verdict: str
    kernels: tuple[str, ...]
    published: tuple[PublishedView, ...]
    judged: tuple[MeasuredView, ...]
    expected: float | None
    judged_on: str | None
    tolerance: float | None
    transfer: str
    transfer_reason: str
    explanation: str
    command: str
    regime: str = IN_TURN
    beside: tuple[tuple[str, MeasuredView], ...] = ()

    @property
    def anchor(self) -> str:
        """The id of its row in the table of claims."""
        return f"claim-{anchor(self.id)}"

    @property
    def places(self) -> tuple[str, ...]:
        """Where its published values are printed, each place once."""
        return tuple(dict.fromkeys(place for row in self.published for place in row.place.split("; ") if place))


_CORRECTIONS = {
    "wrong": "on any GPU, or by the article itself",
    "latent fault": "faults of printed code that change no figure of its article",
    "outdated": "right when written, of a release that has a successor",
    "of its generation": "right on the GPU of its article, not on this one",
}
"""The classes of corrections, worst first, and what each says of a statement."""


@dataclass(frozen=True)
class CorrectionList:
    """The claims whose corrections have one class."""

    name: str
    rule: str
    claims: tuple[ClaimView, ...]


@dataclass(frozen=True)
class VerdictsView:
    """Every claim with its verdict; `source` is ``live``, ``recorded``, ``mixed`` or ``none``.

    `counts` holds, for each register, how many claims have each verdict.
    """

    claims: tuple[ClaimView, ...]
    gpu: str | None
    source: str
    counts: Mapping[str, Mapping[str, int]]

    @property
    def articles(self) -> list[str]:
        """The articles that the claims come from, in alphabetical order."""
        return sorted({claim.article for claim in self.claims})

    @property
    def regimes(self) -> list[str]:
        """The regimes that claims have values in, if any has one in more than its own."""
        found = {regime for claim in self.claims for regime, _ in claim.beside}
        return sorted(found | {claim.regime for claim in self.claims if claim.beside})

    @property
    def decided(self) -> int:
        """How many of the articles' statements were decided by measurement or by count."""
        return sum(self.counts[ARTICLE][verdict] for verdict in DECIDED)

    @property
    def undecided(self) -> int:
        """How many of the articles' statements were measured, with intervals too wide to decide."""
        return self.counts[ARTICLE][UNDECIDED]

    @property
    def corrections(self) -> list[CorrectionList]:
        """The claims that show an article wrong, by class, worst first: marked with a correction, and found wrong."""
        wrong = [(c, c.correction["class"]) for c in self.claims if c.correction and c.verdict in WRONG]
        lists = [
            CorrectionList(name, rule, tuple(claim for claim, kind in wrong if kind == name))
            for name, rule in _CORRECTIONS.items()
        ]
        return [each for each in lists if each.claims]

    @property
    def unfounded(self) -> list[ClaimView]:
        """The claims that are marked as wrong on any GPU although the article's statement was found to hold."""
        marked = [claim for claim in self.claims if claim.correction and claim.correction["class"] in ANYWHERE]
        return [claim for claim in marked if claim.verdict in RIGHT]


def read_verdicts(path: Path, place: Place = nowhere) -> VerdictsView:
    """Read verdicts.json; `place` finds the row behind a key. Raises UserError if it is missing or not JSON."""
    verdicts = read_json(path, "the verdicts", "make them with python -m gemmrepro.judge.verdicts")
    return VerdictsView(
        claims=tuple(claim_view(entry, place) for entry in verdicts["claims"]),
        gpu=verdicts["gpu"],
        source=verdicts["source"],
        counts={
            register: {verdict: verdicts["counts"][register].get(verdict, 0) for verdict in VERDICTS}
            for register in REGISTERS
        },
    )


def claim_view(entry: Mapping[str, Any], place: Place = nowhere) -> ClaimView:
    """A claim from its entry in verdicts.json."""
    judged = [value for value in entry["measured"] if value.get("judged")]
    return ClaimView(
        id=entry["id"],
        family=entry["family"],
        article=entry["article"],
        where=entry["where"],
        statement=entry["statement"],
        register=entry["register"],
        way=entry["way"],
        covered_by=entry["covered_by"],
        correction=entry["correction"],
        verdict=entry["verdict"],
        kernels=tuple(entry.get("kernels") or ()),
        published=tuple(
            PublishedView(row["value"], row["unit"], row["metric"], row["hardware"], row["place"])
            for row in entry["published"]
        ),
        judged=tuple(_measured_view(entry, value, index, place) for index, value in enumerate(judged)),
        expected=entry["expected"],
        judged_on=entry["judged_on"],
        tolerance=entry["tolerance"],
        transfer=entry["transfer"]["kind"],
        transfer_reason=entry["transfer"]["why"],
        explanation=entry["explanation"],
        command=entry["command"],
        regime=entry["regime"]["judged"],
        beside=tuple(
            (regime, _measured_view(entry, value, 0, place)) for regime, value in entry["regime"]["beside"].items()
        ),
    )


def _measured_view(entry: Mapping[str, Any], value: Mapping[str, Any], index: int, place: Place) -> MeasuredView:
    rows = tuple(EvidenceRow(key, place(entry["family"], key)) for key in value["from"])
    return MeasuredView(
        value=value["value"],
        unit=value["unit"],
        low=value["ci_low"],
        high=value["ci_high"],
        rows=rows,
        link=next((row.anchor for row in rows if row.anchor), None) or _link(entry, value, index),
    )


def _link(entry: Mapping[str, Any], value: Mapping[str, Any], place: int) -> str:
    """The anchor of what the `place`-th judged value was read from: an experiment, samples, or a kernel's section."""
    if value.get("experiment"):
        return experiment_anchor(entry["family"], value["experiment"])
    if not entry["kernels"]:
        return f"claim-{anchor(entry['id'])}"
    # With several published figures, each may belong to a kernel of its own.
    kernel = anchor(entry["kernels"][min(place, len(entry["kernels"]) - 1) if len(entry["published"]) > 1 else 0])
    in_the_binary = value["unit"] == "instructions" or value.get("static")
    return kernel if in_the_binary else f"samples-{kernel}"


def experiment_anchor(family: str, name: str) -> str:
    """The id of an experiment's section."""
    return f"experiment-{anchor(f'{family}.{name}')}"


def experiment_row_anchor(family: str, name: str, place: object) -> str:
    """The id of an experiment's row, which is the `place`-th of its file, from 0."""
    return f"row-{anchor(f'{family}.{name}')}-{place}"


@dataclass(frozen=True)
class ArticleTally:
    """How many claims of an article have each verdict."""

    article: str
    counts: Mapping[str, int]


def by_article(claims: Sequence[ClaimView]) -> list[ArticleTally]:
    """The statements of each article, counted by verdict, without build facts and the project's own findings."""
    claims = [claim for claim in claims if claim.register == ARTICLE]
    counted = Counter((claim.article, claim.verdict) for claim in claims)
    return [
        ArticleTally(article, {verdict: counted[article, verdict] for verdict in VERDICTS})
        for article in dict.fromkeys(claim.article for claim in claims)
    ]


@dataclass(frozen=True)
class Disagreement:
    """A claim that is not reproduced: what was measured, and how far off it is."""

    claim: ClaimView
    text: str
    factor: float
    difference: str


def disagreements(claims: Sequence[ClaimView], published: Mapping[str, float | None]) -> list[Disagreement]:
    """Each family's claim that is not reproduced and is furthest, as a factor, from `published` (by claim id).

    Only a statement of the article with one judged value, one published figure and a tolerance compares numbers; the
    others are orders or signs. What carries over by rates is compared with what it makes expect. The largest factor
    comes first.
    """
    furthest: dict[str, Disagreement] = {}
    for claim in claims:
        figure = published.get(claim.id) if claim.expected is None else claim.expected
        if (
            claim.register != ARTICLE
            or claim.verdict != "not reproduced"
            or not claim.tolerance
            or len(claim.judged) != 1
            or not figure
        ):
            continue
        measured = claim.judged[0]
        if not measured.value / figure > 0:
            continue
        factor = max(measured.value / figure, figure / measured.value)
        if claim.family in furthest and factor <= furthest[claim.family].factor:
            continue
        furthest[claim.family] = Disagreement(claim, _amount(claim), factor, difference(measured.value, figure))
    return sorted(furthest.values(), key=lambda disagreement: -math.log(disagreement.factor))


def distance(claim: ClaimView, published: float | None) -> float | None:
    """How far a claim's judged value is from print, as |log2| of their quotient; None where they are no two numbers.

    What carries over by rates is compared with what it makes expect.
    """
    figure = published if claim.expected is None else claim.expected
    if not figure or not claim.tolerance or len(claim.judged) != 1 or not claim.judged[0].value / figure > 0:
        return None
    return abs(math.log2(claim.judged[0].value / figure))


def _amount(claim: ClaimView) -> str:
    """The measured value as the claim states its own: a ratio in per cent if the statement is."""
    measured = claim.judged[0]
    if measured.unit != "ratio":
        return f"{number(measured.value)}{f' {measured.unit}' if measured.unit else ''}"
    return f"{number(100 * measured.value)}%" if "%" in claim.statement else number(measured.value)
