"""The articles whose claims are judged: one folder each under articles/.

`article.yaml` says what the text is and how it measured, `numbers.csv` holds every number that it prints, `map.yaml`
whose programs our kernels are, `claims.yaml` what it states (`gemmrepro.judge`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, schemas
from gemmrepro.errors import UserError
from gemmrepro.registry import chips
from gemmrepro.registry.families import family_names, kernels

ARTICLE, NUMBERS, MAP, CLAIMS = FILES = ("article.yaml", "numbers.csv", "map.yaml", "claims.yaml")


@dataclass(frozen=True, kw_only=True)
class Article:
    """What article.yaml says of a text; see workflow/schemas/article.schema.yaml.

    Attributes:
        source: the article that is the same text; None for one of its own.
        hardware: the name of its chip in chips.yaml, by each name in the column `hardware`; None for what is no GPU.
        toolkits: its claims are judged on the first that has measurements.
        regime: how it measured; None where it does not say.
    """

    name: str
    title: str | None = None
    source: str | None = None
    english: str | None = None
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


def folder(name: str) -> Path:
    """Where an article lies."""
    return paths.ARTICLES_DIR / name


def files(name: str) -> list[Path]:
    """The files of an article, those that it has."""
    return [path for file in FILES if (path := folder(name) / file).is_file()]


def article_names() -> tuple[str, ...]:
    """Names of the folders under articles/, in alphabetical order.

    Raises:
        UserError: there is a file that nothing reads, or a folder without article.yaml.
    """
    names = []
    for path in sorted(paths.ARTICLES_DIR.glob("[!.]*")):
        if not path.is_dir():
            raise UserError(f"{path}: nothing reads it; articles/ holds a folder per article. Move or remove it.")
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.name):
            raise UserError(f"{path}: an article's name has small letters, digits and hyphens; rename the folder.")
        found = {each.name for each in path.glob("[!.]*")}
        if strange := sorted(found - set(FILES)):
            raise UserError(f"{path / strange[0]}: nothing reads it; an article has {', '.join(FILES)}. Remove it.")
        if ARTICLE not in found:
            raise UserError(f"{path / ARTICLE} is missing; write it, or remove the folder.")
        names.append(path.name)
    return tuple(names)


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
            raise UserError(f"{path}, key 'hardware.{hardware}': {chips.FILE} has no chip '{chip}'; add it there.")
    source = entry.get("source")
    if source is not None and (source == path.parent.name or not folder(source).is_dir()):
        raise UserError(f"{path}, key 'source': there is no other article '{source}' in articles/.")
    return Article(name=path.parent.name, **entry)


def chip_of(name: str, hardware: str) -> chips.Chip | None:
    """The chip that an article calls `hardware`; None where it names none, or what is no GPU."""
    called = article(name).hardware.get(hardware)
    return chips.chips()[called] if called else None


def expanded(entries: Sequence[Any]) -> list[Any]:
    """Claims with a table's entry, one with `each`, as one claim per combination of its values.

    ``{n}`` anywhere in such an entry stands for the value of n; a string that is nothing else becomes the value itself.

    Raises:
        UserError: `each` names no list of values, or its id does not tell its claims apart.
    """
    found: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict) or "each" not in entry:
            found.append(entry)
            continue
        each, name = entry["each"], entry.get("id")
        lists = list(each.values()) if isinstance(each, dict) else []
        listed = lists and all(isinstance(values, list) and values for values in lists)
        if not listed or not all(f"{{{key}}}" in str(name) for key in each):
            raise UserError(f"claim '{name}', key 'each': give lists of values by name, and use each name in the id.")
        rest = {key: value for key, value in entry.items() if key != "each"}
        found += [_filled(rest, dict(zip(each, values, strict=True))) for values in product(*each.values())]
    return found


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
    """What stands here for a system of an article: see workflow/schemas/map.schema.yaml."""

    kernels: tuple[str, ...]
    relation: str
    why: str


def programs(name: str) -> Mapping[str, Program]:
    """What stands for each system of an article that its map names; empty without a map.

    Raises:
        UserError: map.yaml is wrong, names a kernel that no family has, or says two things of one kernel.
    """
    path = folder(name) / MAP
    return _read_map(path) if path.is_file() else {}


@cache
def _read_map(path: Path) -> Mapping[str, Program]:
    entries = schemas.read_yaml(path, "map.schema.yaml")["systems"]
    found = {
        name: Program(tuple(each.get("kernels", ())), each["program"], each["why"]) for name, each in entries.items()
    }
    known, said = {kernel.id for kernel in kernels()}, dict[str, str]()
    for system, program in found.items():
        for each in program.kernels:
            if each.split(".")[0] in family_names() and each not in known:
                raise UserError(f"{path}, key 'systems.{system}': there is no kernel '{each}'; name one that there is.")
            if said.setdefault(each, program.relation) != program.relation:
                raise UserError(
                    f"{path}, key 'systems.{system}': {each} is called '{said[each]}' above; settle on one."
                )
    return found


def whose(name: str, named: Collection[str]) -> str:
    """Whose program a claim of an article rests on that names some kernels: AUTHORS, SAME_IDEA or OURS; '' of none."""
    relations = {kernel: each.relation for each in programs(name).values() for kernel in each.kernels}
    found = {relations.get(kernel, OURS) for kernel in named}
    return next((relation for relation in (OURS, SAME_IDEA, AUTHORS) if relation in found), "")


def about(family: str) -> tuple[str, ...]:
    """The articles with claims that are judged by a family, or its kernels, and those whose map names one."""
    named = re.compile(rf"^ *- id: {family}\.|\bfamily: {family}$|\b(kernels?|over): \[?{family}\.\w", re.M)
    return tuple(name for name in article_names() if any(named.search(path.read_text()) for path in files(name)))
