"""The paper's lists: the articles and works that it cites, and the mechanisms behind statements that do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, yaml_files
from gemmrepro.errors import UserError
from gemmrepro.judge.claim import ANYWHERE, ARTICLE, LINKED
from gemmrepro.judge.rules import NOT, NOT_COMPARABLE, PARTLY
from gemmrepro.paper.claims import ClaimView
from gemmrepro.registry.articles import article, article_names


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An article that is reproduced (articles/*/article.yaml), or a work that is cited (references.yaml).

    Attributes:
        number: its place in the list of references, from 1.
        articles: the names of the articles that are this text; none if it is only cited.
        date: a year, or a day (``2026-02-08``); None if it is not known.
        english: a translation of its title.
        gpus: that its figures come from.
        parts: the posts of a series, each with date, title and url.
    """

    id: str
    number: int
    articles: Sequence[str]
    title: str
    english: str | None = None
    authors: Sequence[str] = ()
    date: str | None = None
    language: str = "English"
    gpus: Sequence[str] = ()
    url: str | None = None
    note: str | None = None
    parts: Sequence[Mapping[str, str]] = ()

    @property
    def by(self) -> str:
        """``Yuki Uchino, Katsuhisa Ozaki and Toshiyuki Imamura``; ``Anne Ouyang and others``; empty if unknown."""
        if len(self.authors) < 2:
            return "".join(self.authors)
        return f"{', '.join(self.authors[:-1])} and {self.authors[-1]}"

    @property
    def year(self) -> str | None:
        return self.date[:4] if self.date else None


def references() -> tuple[Reference, ...]:
    """The articles in alphabetical order, one entry per text, then the cited works in the order of their list.

    Raises:
        UserError: a file is missing or wrong.
    """
    path = paths.KERNELS_DIR / "references.yaml"
    entries = [*_texts(), *yaml_files.read(path, "references.schema.yaml")["references"]]
    ids = [entry["id"] for entry in entries]
    for wrong in sorted({each for each in ids if ids.count(each) > 1}):
        raise UserError(f"{path}: there must be one reference with the id '{wrong}', not {ids.count(wrong)}.")
    return tuple(Reference(**{"number": number, "articles": (), **entry}) for number, entry in enumerate(entries, 1))


def _texts() -> Iterator[dict[str, Any]]:
    """The fields of a reference for each text that is reproduced."""
    every = [article(name) for name in article_names()]
    for text in every:
        if text.source:
            continue
        parts = [text, *(each for each in every if each.source == text.name)]
        printed = {name: chip for part in parts for name, chip in part.hardware.items() if chip}
        same = {
            name: getattr(text, name) for name in ("title", "english", "authors", "date", "language", "url", "parts")
        }
        yield {
            "id": text.name,
            "articles": [part.name for part in parts],
            "gpus": [name.removeprefix("NVIDIA ") for name in printed],
            "note": " ".join(filter(None, (text.note, text.read and f"Read {text.read}."))) or None,
            **same,
        }


@dataclass(frozen=True)
class Mechanism:
    """An entry of mechanisms.yaml: a cause that several claims share; `claims` are patterns of claim ids.

    `capabilities` are the compute capabilities on which it is at work; empty for any.
    """

    id: str
    title: str
    text: str
    claims: Sequence[str]
    capabilities: Sequence[str] = field(default=())

    def explains(self, claim: str) -> bool:
        """Whether the claim with this id falls under it."""
        return any(fnmatchcase(claim, pattern) for pattern in self.claims)


@cache
def mechanisms(path: Path = paths.KERNELS_DIR / "mechanisms.yaml") -> tuple[Mechanism, ...]:
    """Every mechanism. Raises UserError if the file is missing or wrong."""
    entries = yaml_files.read(path, "mechanisms.schema.yaml")["mechanisms"]
    return tuple(Mechanism(**entry) for entry in entries)


@dataclass(frozen=True)
class Explained:
    """The mechanisms at work in this run with the claims that each explains, most first; and the unexplained claims."""

    mechanisms: Sequence[tuple[Mechanism, Sequence[ClaimView]]]
    unexplained: Sequence[ClaimView]


def explained(claims: Iterable[ClaimView], causes: Sequence[Mechanism], capability: str = "") -> Explained:
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
    at_work = [cause for cause in causes if not cause.capabilities or capability in cause.capabilities]
    pairs = [(cause, [claim for claim in differing if cause.explains(claim.id)]) for cause in at_work]
    return Explained(
        sorted((pair for pair in pairs if pair[1]), key=lambda pair: -len(pair[1])),
        [claim for claim in differing if not any(cause.explains(claim.id) for cause in at_work)],
    )
