"""The articles whose claims are judged: one folder each under articles/.

`article.yaml` says what the text is, `numbers.csv` holds every number that it prints, `map.yaml` whose programs our
kernels are, `claims.yaml` what it states, and `figures.py` draws its tables and charts beside what was measured.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, schemas
from gemmrepro.errors import UserError, at_line
from gemmrepro.registry import chips

NAME = "[a-z0-9]+(-[a-z0-9]+)*"
ARTICLE, NUMBERS, MAP, CLAIMS = FILES = ("article.yaml", "numbers.csv", "map.yaml", "claims.yaml")
FIGURES = "figures.py"
SCHEMA = "workflow/schemas/claims.schema.yaml"


@dataclass(frozen=True, kw_only=True)
class Article:
    """A text as article.yaml describes it; see workflow/schemas/article.schema.yaml.

    Attributes:
        source: the article that is the same text; None for one of its own.
        hardware: the name of its chip in chips.yaml, by each name in the column `hardware`; None for what is no GPU.
        toolkits: its claims are judged on the first that has measurements.
        headlines: the claims that it is known for, by id, as the report's first picture calls them.
        tagline: what the report's title asks of the first of them; one article at most has it.
        stories: what became of some claims, by id, for the report's first page.
        derive: the kinds of claims that follow from its numbers and map (`gemmrepro.judge.claims`).
        causes: patterns of the ids of claims that a cause of kernels/mechanisms.yaml explains, by its id.
    """

    name: str
    title: str | None = None
    source: str | None = None
    english: str | None = None
    short: str | None = None
    headlines: Mapping[str, str] = field(default_factory=dict)
    tagline: str = ""
    stories: Mapping[str, str] = field(default_factory=dict)
    authors: Sequence[str] = ()
    date: str | None = None
    language: str = "English"
    read: str | None = None
    url: str | None = None
    note: str | None = None
    parts: Sequence[Mapping[str, str]] = ()
    hardware: Mapping[str, str | None]
    baseline: str | None = None
    toolkits: Sequence[str]
    cache: str
    regime: str | None = None
    derive: Sequence[str] = ()
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def folder(name: str) -> Path:
    return paths.ARTICLES_DIR / name


def files(name: str) -> list[Path]:
    """Files that an article's claims rest on: those that it has, but for its figures."""
    return [path for file in FILES if (path := folder(name) / file).is_file()]


def article_names() -> tuple[str, ...]:
    """Names of the folders under articles/. Raises UserError at a file that nothing reads, or without article.yaml."""
    names = []
    for path in sorted(paths.ARTICLES_DIR.glob("[!.]*")):
        if not path.is_dir():
            raise UserError(f"{path}: nothing reads it; articles/ holds a folder per article. Move or remove it.")
        if not re.fullmatch(NAME, path.name):
            raise UserError(f"{path}: an article's name has small letters, digits and hyphens; rename the folder.")
        found = sorted(each for each in path.glob("[!.]*") if each.name != "__pycache__")
        if strange := [each for each in found if each.name not in (*FILES, FIGURES) or not each.is_file()]:
            known = ", ".join((*FILES, FIGURES))
            raise UserError(*(f"{each}: nothing reads it; an article has {known}. Remove it." for each in strange))
        if not (path / ARTICLE).is_file():
            raise UserError(f"{path / ARTICLE} is missing; write it, or remove the folder.")
        names.append(path.name)
    return tuple(names)


def known_for() -> list[Article]:
    """All articles. Raises UserError if two have a tagline."""
    texts = [article(name) for name in article_names()]
    for text in [each for each in texts if each.tagline][1:]:
        where = schemas.place(folder(text.name) / ARTICLE, "tagline")
        raise UserError(f"{where}: another article has one, and the report one title; leave one of the two.")
    return texts


def article(name: str) -> Article:
    """The article called `name`. Raises UserError if there is none, or if its article.yaml is wrong."""
    path = folder(name) / ARTICLE
    if not path.is_file():
        raise UserError(f"there is no article '{name}'; known articles: {', '.join(article_names())}.")
    return _read(path)


@cache
def _read(path: Path) -> Article:
    entry = schemas.read_yaml(path, "article.schema.yaml")
    for hardware, chip in entry["hardware"].items():
        if chip is not None and chip not in chips.chips():
            where = schemas.place(path, "hardware", hardware)
            raise UserError(f"{where}: {chips.FILE} has no chip '{chip}'; add it there.")
    source = entry.get("source")
    if source is not None and (source == path.parent.name or not folder(source).is_dir()):
        raise UserError(
            f"{schemas.place(path, 'source')}: there is no other article '{source}'; name one in articles/."
        )
    return Article(name=path.parent.name, **entry)


def chip_of(name: str, hardware: str) -> chips.Chip | None:
    """The chip that an article calls `hardware`; None where it names none, or what is no GPU."""
    called = article(name).hardware.get(hardware)
    return chips.chips()[called] if called else None


def expanded(entries: Sequence[Any]) -> list[Any]:
    """Claims with a table's entry, one with `each`, as one claim per case.
    `each` lists the cases, mappings of the same names to values, or gives a list of values by name, for every
    combination. ``{n}`` stands for the value of n; a string that is nothing else becomes the value itself. Raises
    UserError if `each` names no values, or its id does not tell its claims apart."""
    found: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict) or "each" not in entry:
            found.append(entry)
            continue
        cases = _cases(entry["each"])
        claims = [_filled({key: value for key, value in entry.items() if key != "each"}, case) for case in cases]
        if not claims or len({str(claim.get("id")) for claim in claims}) < len(claims):
            raise UserError(
                "key 'each': give lists of values by name, or a list of cases, and use what tells them apart in the id."
            )
        found += claims
    return found


def _cases(each: Any) -> list[Mapping[str, Any]]:
    """The values of every case by name; empty if `each` is not as it should be."""
    if isinstance(each, list):
        named = [set(case) if isinstance(case, dict) else set() for case in each]
        return each if all(names and names == named[0] for names in named) else []
    lists = list(each.values()) if isinstance(each, dict) else []
    listed = bool(lists) and all(isinstance(values, list) and values for values in lists)
    return [dict(zip(each, values, strict=True)) for values in product(*lists)] if listed else []


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    if not isinstance(part, str):
        return part
    alone = next((value for name, value in values.items() if part == f"{{{name}}}"), None)
    return alone if alone is not None else re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), part)


AUTHORS, SAME_IDEA, OURS = "author's program", "same idea", "ours"


@dataclass(frozen=True)
class Program:
    """Our counterpart of a system of an article: see workflow/schemas/map.schema.yaml."""

    kernels: tuple[str, ...]
    relation: str
    why: str


def programs(name: str) -> Mapping[str, Program]:
    """Our counterpart of each system of an article's map. Raises UserError if it says two things of one kernel."""
    path = folder(name) / MAP
    return _read_map(path) if path.is_file() else {}


@cache
def _read_map(path: Path) -> Mapping[str, Program]:
    entries = schemas.read_yaml(path, "map.schema.yaml")["systems"]
    found = {
        name: Program(tuple(each.get("kernels", ())), each["program"], each["why"]) for name, each in entries.items()
    }
    said = dict[str, str]()
    for system, program in found.items():
        for each in program.kernels:
            if said.setdefault(each, program.relation) != program.relation:
                raise UserError(
                    f"{schemas.place(path, 'systems', system)}: {each} is called '{said[each]}' above; settle on one."
                )
    return found


def whose(name: str, named: Collection[str]) -> str:
    """Whose program a claim of an article rests on that names some kernels: AUTHORS, SAME_IDEA or OURS; '' of none."""
    relations = {kernel: each.relation for each in programs(name).values() for kernel in each.kernels}
    found = {relations.get(kernel, OURS) for kernel in named}
    return next((relation for relation in (OURS, SAME_IDEA, AUTHORS) if relation in found), "")


def about(family: str) -> tuple[str, ...]:
    """The articles with claims that are judged by a family, or name its kernels, and those whose map names one."""
    return tuple(name for name in article_names() if family in _families(name))


def _families(name: str) -> Collection[str]:
    named: list[Any] = [each for program in programs(name).values() for each in program.kernels]
    for entry in declared(folder(name) / CLAIMS):
        compute = entry.get("compute", {})
        named += [entry.get("id"), entry.get("family"), compute.get("kernel"), compute.get("over")]
        named += compute.get("kernels") or ()
    return {str(each).split(".")[0] for each in named}


def declared(path: Path) -> list[Mapping[str, Any]]:
    """The entries of a claims.yaml; none without a file. Raises UserError as `document_of`."""
    return document_of(path)["claims"] if path.is_file() else []


def document_of(path: Path) -> Mapping[str, Any]:
    """A claims.yaml with its tables as one entry per case.
    Raises UserError if it is not YAML, a table names no cases, or an entry lacks what every one has."""
    return _document(path, schemas.text_at(path))


@cache
def _document(path: Path, text: str) -> Mapping[str, Any]:
    document = schemas.yaml_at(path, text)
    listed = document.get("claims") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise at_line(path, 1, f"there must be a list 'claims'; write it, or remove the file. See {SCHEMA}.")
    entries, wrong = list[Any](), list[str]()
    for number, entry in enumerate(listed, 1):
        try:
            cases = expanded([entry])
        except UserError as error:
            wrong.append(f"{claim_place(path, entry, number)}, {error}")
            continue
        wrong += [
            f"{claim_place(path, case, number)}{why}. See {SCHEMA}." for case in cases if (why := _misshapen(case))
        ]
        entries += cases
    if wrong:
        raise UserError(*wrong)
    return {**document, "claims": entries}


def claim_place(path: Path, entry: Any, number: int = 0) -> str:
    """``path, line 12, claim 'a.b'`` of an entry or an id; without a line where `derive` of article.yaml makes it."""
    name = entry.get("id") if isinstance(entry, dict) else entry if not number else None
    if not isinstance(name, str):
        return f"{schemas.place(path, 'claims', number - 1).rpartition(',')[0]}, claim number {number}"
    text = schemas.text_at(path) if path.is_file() else ""
    for found in re.finditer(r"^[ -]*\{? *id: *([^\s,]+)", text, re.M):
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(found[1])), name):
            return f"{path}, line {text.count(chr(10), 0, found.start(1)) + 1}, claim '{name}'"
    return f"{path}, claim '{name}'"


_OUTLINE = {
    **dict.fromkeys(("id", "family", "derive"), (str, "text")),
    **{"published": (list, "a list"), "compute": (dict, "a mapping"), "transfer": (dict, "a mapping")},
}
"""Keys of an entry that are read before it is held against the schema."""


def _misshapen(entry: Any) -> str:
    """The fault that keeps an entry from being read at all; '' without one."""
    if not isinstance(entry, dict) or "id" not in entry:
        return ": it must be a mapping with an 'id'"
    for key, (kind, words) in _OUTLINE.items():
        if key in entry and not isinstance(entry[key], kind):
            return f", key '{key}': {entry[key]!r:.60} is not {words}"
    if any(not isinstance(row, dict) for row in entry.get("published", ())):
        return ", key 'published': each must be a mapping of the cells of a row"
    kernels = entry.get("compute", {}).get("kernels", [])
    return "" if isinstance(kernels, list) else f", key 'compute.kernels': {kernels!r:.60} is not a list"
