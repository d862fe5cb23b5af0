"""The articles' numbers: kernels/published.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import PUBLISHED_CSV
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import number

PUBLISHED_COLUMNS = "article table system dtype n d metric value unit hardware place note".split()
NEED_NO_CLAIM = {
    "parameter": "what an article sets, not measures",
    "lines": "claims on the lengths of sources compare the project's own files",
}
"""Metrics of rows that no claim has to refer to, and why."""


def published_rows(path: Path = PUBLISHED_CSV) -> list[dict[str, Any]]:
    """published.csv as dicts: n and d as int or None, value as float, empty text as ''.

    `place` says where a source prints it: ``Section: sentence``, several with ``; `` between them.

    Raises:
        UserError: the file is missing, or a cell is not a number.
    """
    return [dict(row) for row in _read(path)]


@cache
def _read(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The file is read once: a family's figures look up some hundred of its rows."""
    try:
        with path.open(newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; restore it from the repository.") from None
    for line, row in enumerate(rows, start=2):
        absent = [column for column in PUBLISHED_COLUMNS if row.get(column) is None]
        if absent:
            raise UserError(f"{path}, line {line}: no value for column {', '.join(absent)}.")
        for name, kind in (("value", "number"), ("n", "integer"), ("d", "integer")):
            cell = row[name]
            row[name] = number(cell, kind)
            if row[name] is None and (cell or name == "value"):
                raise UserError(f"{path}, line {line}: {name} is '{cell}', which is no {kind}.")
    return tuple(rows)
