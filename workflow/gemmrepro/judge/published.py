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
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.errors import UserError
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.measure.columns import Column, Table, number
from gemmrepro.registry import articles

_ANY = Column("", optional=True, pattern=".")
COLUMNS: Table = {
    "table": _ANY,
    "system": Column("the article's name for what was measured", pattern="."),
    "dtype": Column("type of the operands", optional=True, among=tuple(DTYPES)),
    "n": Column("size", "integer", optional=True, least=1),
    "d": Column("slices or moduli", "integer", optional=True),
    "metric": Column("what was measured", pattern="^[a-z_]+$"),
    "value": Column("as printed", "number", least=0),
    **{"unit": _ANY, "hardware": _ANY},
    "place": Column("where it is printed", pattern="."),
    "note": _ANY,
}
"""The columns of numbers.csv."""
_TELL_APART = ("table", "system", "dtype", "n", "d", "metric", "hardware", "unit")
_UNITS = {
    "throughput": ("TFLOP/s", "GFLOP/s"),
    **dict.fromkeys(("time", "total_time", "kernel_time", "split_time"), ("s", "ms", "us")),
    **dict.fromkeys(("speedup", "ratio_to_cublas", "ratio_to_peak"), ("ratio",)),
}
"""Units of metrics from which claims are derived."""
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
    tables = [pd.read_csv(path, dtype=str, keep_default_na=False)[[*COLUMNS]] for path in paths]
    return pd.concat(tables, keys=[path.parent.name for path in paths], names=["article", ""]).droplevel(1).to_csv()


@cache
def _read(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The file is read once: a family's figures look up some hundred of its rows."""
    known = articles.article(path.parent.name).hardware
    try:
        header, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True)
    except (csv.Error, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path} is not a CSV in UTF-8 with a header ({error}); correct it.") from None
    if header != [*COLUMNS]:
        raise UserError(f"{path}, line 1: the columns are {','.join(COLUMNS)}; write these, in this order.")
    rows: list[dict[str, Any]] = []
    told: dict[tuple[str, ...], int] = {}
    for line, cells in enumerate(lines, start=2):
        place = f"{path}, line {line}"
        if len(cells) != len(header):
            raise UserError(f"{place}: {len(cells)} cells, not {len(header)}; put text with a comma into quotes.")
        for (name, column), cell in zip(COLUMNS.items(), cells, strict=True):
            if wrong := column.complaint(cell):
                raise UserError(f"{place}: {name}: {wrong}; correct it.")
        row = dict(zip(header, cells, strict=True))
        if (units := _UNITS.get(row["metric"])) and row["unit"] not in units:
            raise UserError(f"{place}: {row['metric']} in '{row['unit']}'; convert it to {' or '.join(units)}.")
        if row["hardware"] and row["hardware"] not in known:
            raise UserError(f"{place}: {articles.ARTICLE} has no hardware '{row['hardware']}'; name its chip.")
        first = told.setdefault(tuple(row[name] for name in _TELL_APART), line)
        if first < line:
            raise UserError(f"{place}: tells of the same as line {first}; remove one, or give it another table.")
        rows.append(
            row | {name: number(row[name], column.kind) for name, column in COLUMNS.items() if column.kind != "text"}
        )
    return tuple(rows)
