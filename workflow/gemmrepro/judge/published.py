"""The articles' numbers: articles/<name>/numbers.csv."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.errors import UserError, at_line
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.measure.columns import Column, Table, number
from gemmrepro.registry import articles

_ANY = Column("", optional=True, pattern=".")
COLUMNS: Table = {
    "table": _ANY,
    "system": Column("the article's name for what was measured", pattern="."),
    "dtype": Column("type of the operands", optional=True, among=tuple(DTYPES)),
    "n": Column("size", "integer", optional=True, least=1),
    "d": Column("slices or moduli", "integer", optional=True, least=1),
    "metric": Column("what was measured", pattern="^[a-z_]+$"),
    "value": Column("as printed", "number", least=0),
    **{"unit": _ANY, "hardware": _ANY},
    "place": Column("where it is printed", pattern="."),
    "note": _ANY,
}
_TELL_APART = ("table", "system", "dtype", "n", "d", "metric", "hardware", "unit")
_UNITS = {
    "throughput": ("TFLOP/s", "GFLOP/s"),
    **dict.fromkeys(("time", "total_time", "kernel_time", "split_time"), ("s", "ms", "us")),
    **dict.fromkeys(("speedup", "ratio_to_cublas", "ratio_to_peak"), ("ratio",)),
}
"""Units of metrics from which claims are derived."""
UNITLESS = ("parameter", "trend", "negative_result", "numerics")
"""Metrics that may have no unit; a quotient has the unit ratio, a number of things count."""
NEED_NO_CLAIM = {
    "parameter": "what an article sets, not measures",
    "lines": "claims on the lengths of sources compare the project's own files",
}
"""Metrics of rows that no claim has to refer to, and why."""

TIMED = ("throughput", "time", "total_time", "kernel_time", "split_time", "ratio_to_cublas")
"""Metrics of programs, whose systems need an entry in map.yaml."""


def published_rows(name: str | None = None) -> list[dict[str, Any]]:
    """The numbers of an article, by default of all: n and d as int or None, value as float, empty text as ''.
    `place` says where a source prints it: ``Section: sentence``, several with ``; `` between them. An article without
    numbers has no file. Raises UserError, with file and line of every wrong row."""
    names = articles.article_names() if name is None else (name,)
    paths = {each: articles.folder(each) / articles.NUMBERS for each in names}
    return [{"article": each, **row} for each, path in paths.items() if path.is_file() for row in _read(path)]


def picked(reference: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | str:
    """The one row that has the cells of `reference`; a message if it is not one."""
    matching = [row for row in rows if all(row.get(key) == value for key, value in reference.items())]
    wanted = ", ".join(f"{key} {value}" for key, value in reference.items())
    if len(matching) == 1:
        return matching[0]
    remedy = "name further cells" if matching else "correct a cell, or enter the row"
    return f"{len(matching)} rows of numbers.csv match ({wanted}), not one; {remedy}"


def mapping_problems(name: str, every: bool = True) -> list[str]:
    """Contradictions between an article's numbers and its map, each with its file and line.
    Timed systems without an entry, entries without a row, unknown names, and kernels of other types than all the rows
    have; unless `every` family is at hand, only names in one that is."""
    rows, mapped = published_rows(name), articles.programs(name)
    path, kernels = articles.folder(name) / articles.MAP, {kernel.id: kernel for kernel in registry.kernels()}
    wrong = list[str]()
    for system in sorted({row["system"] for row in rows if row["metric"] in TIMED} - mapped.keys()):
        line = next(line for line, row in enumerate(rows, 2) if row["system"] == system)
        why = f"{articles.MAP} has no system '{system}'; say there what stands for it."
        wrong += at_line(articles.folder(name) / articles.NUMBERS, line, why).lines
    known, families = {*kernels, *libraries()} if mapped else set(), registry.family_names()
    for system, program in mapped.items():
        strange = [each for each in program.kernels if each not in known and (every or each.split(".")[0] in families)]
        own = [kernels[each] for each in program.kernels if each in kernels]
        types = {row["dtype"] for row in rows if row["system"] == system} - {""}
        # An emulation multiplies slices of the type that an article prints.
        odd = [each for each in own if types and each.compute.dtype_in not in types and not each.promises.error]
        if not any(row["system"] == system for row in rows):
            why = f"{articles.NUMBERS} has no such system; remove it, or enter its numbers"
        elif strange:
            why = f"'{strange[0]}' is neither a kernel nor a library; name one that there is"
        elif odd:
            printed = ", ".join(sorted(types))
            why = f"{odd[0].id} takes {odd[0].compute.dtype_in}, and its rows are of {printed}; name another"
        else:
            continue
        wrong.append(f"{schemas.place(path, 'systems', system)}: {why}.")
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
    reader = csv.reader(io.StringIO(schemas.text_at(path), newline=""), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise at_line(path, reader.line_num, f"not CSV: {error}; correct it.") from None
    if not lines or lines[0] != [*COLUMNS]:
        raise at_line(path, 1, f"the columns are {','.join(COLUMNS)}; write these, in this order.")
    known = articles.article(path.parent.name).hardware
    told = dict[tuple[str, ...], int]()
    rows, wrong = list[dict[str, Any]](), list[str]()
    for line, cells in enumerate(lines[1:], start=2):
        row = dict(zip(COLUMNS, cells, strict=False))
        why = _complaint(cells, row, known)
        first = told.setdefault(tuple(row.get(name, "") for name in _TELL_APART), line)
        if not why and first < line:
            why = f"tells of the same as line {first}; remove one, or give it another table"
        if why:
            wrong += at_line(path, line, f"{why}.").lines
            continue
        rows.append(
            row | {name: number(row[name], column.kind) for name, column in COLUMNS.items() if column.kind != "text"}
        )
    if wrong:
        raise UserError(*wrong)
    return tuple(rows)


def _complaint(cells: Sequence[str], row: Mapping[str, str], hardware: Collection[str]) -> str:
    """The fault of a line of numbers.csv, and the remedy; '' without one."""
    if not "".join(cells).strip():
        return "an empty line; remove it"
    if len(cells) != len(COLUMNS):
        return f"{len(cells)} cells, not {len(COLUMNS)}; put text with a comma into quotes"
    for (name, column), cell in zip(COLUMNS.items(), cells, strict=True):
        spelled = "blanks around it" if cell != cell.strip() else f"{cell!a} has what does not print"
        if wrong := column.complaint(cell) or ("" if cell == cell.strip() and cell.isprintable() else spelled):
            return f"{name}: {wrong}; correct it"
    metric, unit = row["metric"], row["unit"]
    if (units := _UNITS.get(metric)) and unit not in units:
        return f"{metric} in '{unit}'; convert it to {' or '.join(units)}"
    if not unit and metric not in UNITLESS:
        return f"{metric} has no unit; write it, or ratio of a quotient, count of a number of things"
    if row["hardware"] and row["hardware"] not in hardware:
        return f"{articles.ARTICLE} has no hardware '{row['hardware']}'; name its chip"
    return ""
