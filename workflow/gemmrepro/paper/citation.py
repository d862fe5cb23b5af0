"""How to cite the report, for people and for programs: BibTeX, ``citation_*`` tags, and JSON-LD by schema.org.

The authors, the version and the licence are those of ``CITATION.cff``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from gemmrepro.core import yaml_files
from gemmrepro.core.paths import ROOT
from gemmrepro.paper.references import Reference

FILE = ROOT / "CITATION.cff"
SCHEMA = "citation.schema.yaml"
LICENCES = "https://spdx.org/licenses/"

_TYPES = {
    ".bib": "application/x-bibtex",
    ".csv": "text/csv",
    ".js": "text/javascript",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Citation:
    """What identifies this report: its title, and what CITATION.cff says; `date` (ISO) is that of its measurements."""

    title: str
    abstract: str
    authors: tuple[str, ...]
    version: str
    license: str
    keywords: tuple[str, ...]
    date: str | None

    @property
    def meta(self) -> tuple[tuple[str, str], ...]:
        """The tags that indexers of articles read: ``<meta name=… content=…>``."""
        tags = [("citation_title", self.title), *(("citation_author", author) for author in self.authors)]
        if self.date:
            tags.append(("citation_publication_date", self.date.replace("-", "/")))
        tags += [("citation_language", "en"), ("citation_keywords", "; ".join(self.keywords))]
        return tuple(tags)

    @cached_property
    def bibtex(self) -> str:
        """An entry ``@software``; names and titles keep their capitals."""
        fields = {
            "author": " and ".join(f"{{{_escaped(author)}}}" for author in self.authors),
            "title": f"{{{_escaped(self.title)}}}",
            "year": self.date[:4] if self.date else None,
            "version": self.version,
            "note": f"{self.license} license",
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join(["@software{gemmrepro,", *lines, "}", ""])


def citation(title: str, date: str | None) -> Citation:
    """The citation of a report with this title; `date` is an ISO date or time. Raises UserError if FILE is wrong."""
    told = yaml_files.read(FILE, SCHEMA)
    return Citation(
        title=title,
        abstract=" ".join(told["abstract"].split()),
        authors=tuple(author["name"] for author in told["authors"]),
        version=told["version"],
        license=told["license"],
        keywords=tuple(told["keywords"]),
        date=date[:10] if date else None,
    )


def linked_data(cited: Citation, references: Sequence[Reference], files: Mapping[str, str]) -> Markup:
    """JSON-LD for a script element: the paper, what it cites, and its data; `files` maps places to descriptions."""
    people = [{"@type": "Organization", "name": author} for author in cited.authors]
    common = {
        "creator": people,
        "license": f"{LICENCES}{cited.license}.html",
        "version": cited.version,
        "inLanguage": "en",
        "isAccessibleForFree": True,
        **({"datePublished": cited.date} if cited.date else {}),
    }
    article = {
        "@type": "ScholarlyArticle",
        "@id": "#paper",
        "headline": cited.title,
        "name": cited.title,
        "author": people,
        "abstract": cited.abstract,
        "keywords": list(cited.keywords),
        "citation": [_cited(reference) for reference in references],
        **common,
    }
    dataset = {
        "@type": "Dataset",
        "@id": "#data",
        "name": f"{cited.title}: verdicts, rows and samples",
        "description": "Every claim with its verdict, every measured row, and the samples behind the rows.",
        "isPartOf": {"@id": "#paper"},
        "distribution": [
            {"@type": "DataDownload", "contentUrl": place, "encodingFormat": _kind(place), "description": meaning}
            for place, meaning in files.items()
        ],
        **common,
    }
    text = json.dumps({"@context": "https://schema.org", "@graph": [article, dataset]}, ensure_ascii=False)
    # No text may end the script element that holds it.
    return Markup(re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _cited(reference: Reference) -> dict[str, Any]:
    told: dict[str, Any] = {"@type": "CreativeWork", "name": reference.title}
    if reference.authors:
        told["author"] = [{"@type": "Person", "name": author} for author in reference.authors]
    if reference.date:
        told["datePublished"] = reference.date
    if reference.url:
        told["url"] = reference.url
    return told


def _kind(place: str) -> str:
    return _TYPES.get(place[place.rindex(".") :], "application/octet-stream")


def _escaped(text: str) -> str:
    """Text for BibTeX."""
    return re.sub(r"([&%$#_{}])", r"\\\1", text)
