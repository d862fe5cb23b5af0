"""The articles and the related work that the paper cites: kernels/references.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmrepro.core import paths, yaml_files
from gemmrepro.errors import UserError

FILE = "references.yaml"
SCHEMA = "references.schema.yaml"


@dataclass(frozen=True)
class Part:
    """One post of a reference that is a series."""

    date: str
    title: str
    url: str


@dataclass(frozen=True)
class Reference:
    """An article that is reproduced, or a work that is cited.

    Attributes:
        number: its place in the list of references, from 1.
        articles: its names in the column `article` of published.csv; none if it is only cited.
        date: a year, or a day (``2026-02-08``); None if it is not known.
        english: what a title in another language says.
        gpus: that its figures come from.
    """

    id: str
    number: int
    articles: tuple[str, ...]
    title: str
    english: str | None
    authors: tuple[str, ...]
    date: str | None
    language: str
    gpus: tuple[str, ...]
    url: str | None
    note: str | None
    parts: tuple[Part, ...]

    @property
    def by(self) -> str:
        """``Yuki Uchino, Katsuhisa Ozaki and Toshiyuki Imamura``; ``Anne Ouyang and others``; empty if unknown."""
        if len(self.authors) < 2:
            return "".join(self.authors)
        return f"{', '.join(self.authors[:-1])} and {self.authors[-1]}"

    @property
    def year(self) -> str | None:
        return self.date[:4] if self.date else None


def references(path: Path = paths.KERNELS_DIR / FILE) -> tuple[Reference, ...]:
    """Every reference, in the order of the list. Raises UserError if the file is missing or wrong."""
    return _read(path)


def of_articles(found: tuple[Reference, ...]) -> Mapping[str, Reference]:
    """References by the article's name in published.csv."""
    return {article: reference for reference in found for article in reference.articles}


@cache
def _read(path: Path) -> tuple[Reference, ...]:
    entries = yaml_files.read(path, SCHEMA)["references"]
    articles: dict[str, list[str]] = {}
    for entry in entries:
        if "article" in entry:
            articles.setdefault(entry.get("same_as", entry["id"]), []).append(entry["article"])
    texts = [entry for entry in entries if "same_as" not in entry]
    ids = [entry["id"] for entry in texts]
    for wrong in sorted({each for each in ids if ids.count(each) > 1} | (set(articles) - set(ids))):
        raise UserError(f"{path}: there must be one reference with the id '{wrong}', not {ids.count(wrong)}.")
    return tuple(
        Reference(
            id=entry["id"],
            number=number,
            articles=tuple(articles.get(entry["id"], ())),
            title=entry["title"],
            english=entry.get("english"),
            authors=tuple(entry.get("authors", ())),
            date=entry.get("date"),
            language=entry.get("language", "English"),
            gpus=tuple(entry.get("gpus", ())),
            url=entry.get("url"),
            note=entry.get("note"),
            parts=tuple(Part(**part) for part in entry.get("parts", ())),
        )
        for number, entry in enumerate(texts, 1)
    )
