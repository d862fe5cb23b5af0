"""The articles' numbers: articles/<name>/numbers.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.errors import UserError
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.measure.columns import number
from gemmrepro.registry import articles

PUBLISHED_COLUMNS = "table system dtype n d metric value unit hardware place note".split()
NEED_NO_CLAIM = {
    "parameter": "what an article sets, not measures",
    "lines": "claims on the lengths of sources compare the project's own files",
}
"""Metrics of rows that no claim has to refer to, and why."""

TIMED = ("throughput", "time", "total_time", "kernel_time", "split_time", "ratio_to_cublas")
"""Metrics of programs, whose systems need an entry in map.yaml."""


def published_rows(name: str | None = None) -> list[dict[str, Any]]:
    """The numbers of an article, by default of all: n and d as int or None, value as float, empty text as ''.

    `article` is the folder's name; `place` says where a source prints it: ``Section: sentence``, several with ``; ``
    between them. An article that prints no number has no file.

    Raises:
        UserError: a column is missing, a cell is not a number, or article.yaml does not name the hardware.
    """
    names = articles.article_names() if name is None else (name,)
    paths = {each: articles.folder(each) / articles.NUMBERS for each in names}
    return [{"article": each, **row} for each, path in paths.items() if path.is_file() for row in _read(path)]


def picked(reference: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | str:
    """The one row that has the cells of `reference`; a message if it is not one."""
    matching = [row for row in rows if all(row.get(key) == value for key, value in reference.items())]
    wanted = ", ".join(f"{key} {value}" for key, value in reference.items())
    return matching[0] if len(matching) == 1 else f"{len(matching)} rows of numbers.csv match ({wanted}), not one"


def mapping_problems(name: str, every: bool = True) -> list[str]:
    """What is wrong between an article's numbers and its map, each with its file and line.

    That is timed systems without an entry, entries without a row, and names of neither a kernel nor a library; unless
    `every` family is at hand, only names in one that is.
    """
    rows, mapped = published_rows(name), articles.programs(name)
    printed, path = {row["system"] for row in rows}, articles.folder(name) / articles.MAP
    missing = sorted({row["system"] for row in rows if row["metric"] in TIMED} - mapped.keys())
    wrong = [
        f"{path}: the system '{each}' of {articles.NUMBERS} is missing; say what stands for it" for each in missing
    ]
    known = {*(kernel.id for kernel in registry.kernels()), *libraries()} if mapped else set()
    families = registry.family_names()
    for system, program in mapped.items():
        strange = [each for each in program.kernels if each not in known and (every or each.split(".")[0] in families)]
        if system not in printed:
            place = schemas.place(path, "systems", system)
            wrong.append(f"{place}: {articles.NUMBERS} has no such system; remove it, or enter its numbers")
        elif strange:
            place = schemas.place(path, "systems", system)
            wrong.append(f"{place}: '{strange[0]}' is neither a kernel nor a library; name one that there is")
    return wrong


def libraries() -> set[str]:
    """The libraries that a system may stand for: the baselines, and those that an experiment calls."""
    called = (each for family in registry.family_names() for each in experiments.declared(family))
    return {*BASELINES, *(library for experiment in called for library in experiment.libraries)}


def as_csv() -> str:
    """All numbers as one table, as their files print them, with the article's name in a column of its own."""
    paths = [path for name in articles.article_names() if (path := articles.folder(name) / articles.NUMBERS).is_file()]
    tables = [pd.read_csv(path, dtype=str, keep_default_na=False)[PUBLISHED_COLUMNS] for path in paths]
    return pd.concat(tables, keys=[path.parent.name for path in paths], names=["article", ""]).droplevel(1).to_csv()


@cache
def _read(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The file is read once: a family's figures look up some hundred of its rows."""
    known = articles.article(path.parent.name).hardware
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows: list[dict[str, Any]] = list(reader)
    if strange := sorted(set(reader.fieldnames or ()) - set(PUBLISHED_COLUMNS)):
        raise UserError(f"{path}, line 1: nothing reads the column '{strange[0]}'; remove it.")
    for line, row in enumerate(rows, start=2):
        absent = [column for column in PUBLISHED_COLUMNS if row.get(column) is None]
        if absent:
            raise UserError(f"{path}, line {line}: no value for column {', '.join(absent)}.")
        for name, kind in (("value", "number"), ("n", "integer"), ("d", "integer")):
            cell = row[name]
            row[name] = number(cell, kind)
            if row[name] is None and (cell or name == "value"):
                raise UserError(f"{path}, line {line}: {name} is '{cell}', which is no {kind}.")
        if row["hardware"] and row["hardware"] not in known:
            raise UserError(
                f"{path}, line {line}: {articles.ARTICLE} has no hardware '{row['hardware']}'; name its chip."
            )
    return tuple(rows)
