"""Claims with their verdicts as the pages show them, the articles that state them, and why some do not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, schemas
from gemmrepro.core.files import read_json
from gemmrepro.core.text import as_published, convert, listed
from gemmrepro.errors import UserError
from gemmrepro.judge.claim import ANYWHERE, ARTICLE, LINKED
from gemmrepro.judge.rules import DECIDED, NOT, NOT_COMPARABLE, PARTLY, UNDECIDED, WRONG
from gemmrepro.paper.text import View, anchor, number
from gemmrepro.registry import articles
from gemmrepro.registry.articles import OURS, SAME_IDEA, article, article_names, whose

Place = Callable[[str, str], str | None]
"""The id of the row that a key of verdicts.json names, given the claim's family and the key."""


def published_view(row: Mapping[str, Any] | None) -> View | None:
    """A figure in print, from a row of numbers.csv; None without one. `text` is as the article prints it."""
    if row is None:
        return None
    unit = "" if row["unit"] in ("", "ratio", "count") else f" {row['unit']}"
    in_words = row["metric"] in ("numerics", "negative_result")
    kept = {name: row[name] for name in ("value", "unit", "metric", "hardware", "place")}
    return View(**kept, text="in words" if in_words else as_published(row["value"]) + unit)


@dataclass(frozen=True)
class MeasuredView:
    """A value that a claim was judged on.
    `rows` are what it was read from: names in verdicts.json and their ids in the report, None where it shows no such
    row. `link` is the first of these ids, or the claim's own."""

    value: float
    unit: str
    low: float
    high: float
    rows: tuple[tuple[str, str | None], ...]
    link: str

    @property
    def text(self) -> str:
        """The value without its unit; counts are exact."""
        counted = self.low == self.high and float(self.value).is_integer() and abs(self.value) < 1e9
        return as_published(self.value) if counted or self.unit == "instructions" else number(self.value)


class ClaimView(View):
    """An entry of verdicts.json, all of whose fields it has.
    `published` and `judged` are views of its figures in print and of the values that it was judged on; `regime` is the
    one it was judged in, `beside` pairs the others with its value there."""

    @property
    def anchor(self) -> str:
        """The id of its row in the table of claims."""
        return f"claim-{anchor(self.id)}"

    @property
    def program(self) -> str:
        """Whose program its kernels are: the author's, one of the same idea, or ours; '' where it names none."""
        return whose(self.article, self.kernels)

    def over(self, published: tuple[float | None, str] | None) -> float | None:
        """The judged value over the published one (and its unit), or over what that makes expect here.
        None where no measurement or count decided, or they are no two numbers of one quantity. Orders and signs have no
        tolerance, and compare no numbers."""
        if self.verdict not in DECIDED or not self.tolerance or len(self.judged) != 1:
            return None
        judged, (figure, unit) = self.judged[0], published or (None, "")
        if self.expected is not None:
            figure, unit = self.expected, judged.unit
        value = convert(judged.value, judged.unit, unit)
        return value / figure if value and figure and value / figure > 0 else None


_CORRECTIONS = schemas.words("claims.schema.yaml", "error")
"""The classes of corrections, worst first, and what each says of a statement."""


@dataclass(frozen=True)
class VerdictsView:
    """Every claim with its verdict; `source` is ``live``, ``recorded``, ``mixed`` or ``none``.
    `counts` holds, for each register, how many claims have each verdict."""

    claims: tuple[ClaimView, ...]
    gpu: str | None
    source: str
    counts: Mapping[str, Mapping[str, int]]

    @property
    def decided(self) -> int:
        """Number of the articles' statements that were decided by measurement or by count."""
        return sum(self.counts[ARTICLE][verdict] for verdict in DECIDED)

    @property
    def corrections(self) -> list[View]:
        """The claims that show an article wrong, by class, worst first: marked with a correction, and found wrong."""
        wrong = [(claim.correction or {}, claim) for claim in self.claims if claim.verdict in WRONG]
        lists = {name: tuple(claim for about, claim in wrong if about.get("class") == name) for name in _CORRECTIONS}
        return [View(name=name, rule=_CORRECTIONS[name], claims=claims) for name, claims in lists.items() if claims]


def read_verdicts(path: Path, place: Place | None = None) -> VerdictsView:
    """Read verdicts.json; `place` finds the row behind a key. Raises UserError if it is missing or not JSON."""
    verdicts = read_json(path, "the verdicts", "make them with python -m gemmrepro verdicts")
    return VerdictsView(
        claims=tuple(claim_view(entry, place) for entry in verdicts["claims"]),
        gpu=verdicts["gpu"],
        source=verdicts["source"],
        counts=verdicts["counts"],
    )


def claim_view(entry: Mapping[str, Any], place: Place | None = None) -> ClaimView:
    judged = [value for value in entry["measured"] if value.get("judged")]
    beside = entry["regime"]["beside"].items()
    own = {
        "kernels": tuple(entry.get("kernels") or ()),
        "published": [view for row in entry["published"] if (view := published_view(row))],
        "judged": [_measured_view(entry, value, place) for value in judged],
        "transfer": entry["transfer"]["kind"],
        "transfer_reason": entry["transfer"]["why"],
        "regime": entry["regime"]["judged"],
        "beside": [(regime, _measured_view(entry, value, place)) for regime, value in beside],
    }
    return ClaimView(**{**entry, **own})


def _measured_view(entry: Mapping[str, Any], value: Mapping[str, Any], place: Place | None) -> MeasuredView:
    rows = tuple((key, place(entry["family"], key) if place else None) for key in value["from"])
    link = next((row for _, row in rows if row), f"claim-{anchor(entry['id'])}")
    return MeasuredView(value["value"], value["unit"], value["ci_low"], value["ci_high"], rows, link)


def headlines(claims: Iterable[ClaimView], published: Mapping[str, float | None]) -> list[View]:
    """The claims that articles are known for and that one number judged, the article with most decided ones first.

    `published` (by claim id) and `measured` are multiples of what they are compared with, or of what the chips' rates
    make expect here; `texts` have units. `quote` are the title's words for it; `mark` tells another's program by a †.
    """
    known = {claim.id: claim for claim in claims if claim.verdict in (*DECIDED, UNDECIDED, NOT_COMPARABLE)}
    stated = Counter(claim.article for claim in known.values() if claim.verdict in DECIDED)
    found = []
    for text in sorted(articles.known_for(), key=lambda text: -stated[text.name]):
        for place, (name, words) in enumerate(text.headlines.items()):
            claim, value = known.get(name), published.get(name)
            if not claim or not value or len(claim.judged) != 1:
                continue
            here, expected, so = claim.judged[0], claim.expected, claim.expected and f", so {number(claim.expected)}"
            found.append(
                View(
                    article=article(text.source or text.name).short or text.name,
                    name=words,
                    claim=claim,
                    quote="" if place else text.tagline,
                    mark=" †" if claim.program in (SAME_IDEA, OURS) else "",
                    published=1.0 if expected else value,
                    measured=here.value / (expected or 1),
                    texts=(number(value) + (so or ""), f"{here.text} {here.unit}".removesuffix(" ratio")),
                )
            )
    return found


class Reference(View):
    """An article that is reproduced (articles/*/article.yaml), or a work that is cited (references.yaml).
    `number` is its place in the list, from 1; `articles` names the articles that are this text; `english` translates
    its title, `short` is what pictures call it; `gpus` those of its figures; `parts` the posts of a series. What is not
    known is None, or empty."""

    @property
    def by(self) -> str:
        """``Yuki Uchino, Katsuhisa Ozaki and Toshiyuki Imamura``; ``Anne Ouyang and others``; empty if unknown."""
        return listed(self.authors)

    @property
    def year(self) -> str | None:
        return self.date[:4] if self.date else None


_UNKNOWN: Mapping[str, Any] = {
    **dict.fromkeys(("english", "short", "date", "url", "note")),
    **dict.fromkeys(("articles", "authors", "gpus", "parts"), ()),
    "language": "English",
}


def references() -> tuple[Reference, ...]:
    """The articles in alphabetical order, one entry per text, then the works that are only cited, as in their list.
    Raises UserError if a file is missing or wrong."""
    path = paths.KERNELS_DIR / "references.yaml"
    cited = schemas.read_yaml(path, "references.schema.yaml")["references"]
    ids = [entry["id"] for entry in cited]
    for wrong in sorted({each for each in ids if ids.count(each) > 1}):
        raise UserError(f"{path}: there must be one reference with the id '{wrong}', not {ids.count(wrong)}.")
    entries = [*_texts(), *(entry for entry in cited if entry["id"] not in article_names())]
    return tuple(Reference(**{**_UNKNOWN, **entry, "number": number}) for number, entry in enumerate(entries, 1))


def _texts() -> Iterator[dict[str, Any]]:
    every = [article(name) for name in article_names()]
    for text in every:
        if text.source:
            continue
        parts = [text, *(each for each in every if each.source == text.name)]
        printed = {name: chip for part in parts for name, chip in part.hardware.items() if chip}
        same = ("title", "english", "short", "authors", "date", "language", "url", "parts")
        yield {
            "id": text.name,
            "articles": [part.name for part in parts],
            "gpus": [name.removeprefix("NVIDIA ") for name in printed],
            "note": " ".join(filter(None, (text.note, text.read and f"Read {text.read}."))) or None,
            **{name: getattr(text, name) for name in same},
        }


@cache
def mechanisms(path: Path = paths.KERNELS_DIR / "mechanisms.yaml") -> list[dict[str, Any]]:
    """The entries of mechanisms.yaml: causes that several claims share, each with patterns of their ids as `claims`.
    Raises UserError if a file is wrong, or an article names a cause that is not there."""
    entries = schemas.read_yaml(path, "mechanisms.schema.yaml")["mechanisms"]
    claims: dict[str, list[str]] = {entry["id"]: [] for entry in entries}
    for name in articles.article_names():
        for cause, patterns in articles.article(name).causes.items():
            if cause not in claims:
                where = schemas.place(articles.folder(name) / articles.ARTICLE, "causes", cause)
                raise UserError(f"{where}: {path.name} has no cause '{cause}'; add it there, or name one that it has.")
            claims[cause] += patterns
    return [{**entry, "claims": claims[entry["id"]]} for entry in entries]


def explained(
    claims: Iterable[ClaimView], causes: Iterable[Mapping[str, Any]], capability: str = ""
) -> list[tuple[Mapping[str, Any], list[ClaimView]]]:
    """The articles' statements that hold at most in part, and are not wrong on any GPU, by mechanism.
    Of mechanisms at work on a GPU of compute capability `capability`, each with what it explains, most first."""
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
    at_work = [cause for cause in causes if capability in cause.get("capabilities", [capability])]
    pairs = [
        (cause, [claim for claim in differing if any(fnmatchcase(claim.id, each) for each in cause["claims"])])
        for cause in at_work
    ]
    return sorted((pair for pair in pairs if pair[1]), key=lambda pair: -len(pair[1]))
