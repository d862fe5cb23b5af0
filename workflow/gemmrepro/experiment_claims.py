"""What an experiment's rows say to a claim: a column's value for one kernel, or its quotient with that for another.

A claim's ``compute`` names the experiment, the column `value`, the `kernel`, perhaps another one `over` which it is
divided, the points `where` it is asked, and the bounds: `above`, `least`, `most`. The row that is divided by has the
values of `over_where` in the columns that this names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro.claims import format_number, points
from gemmrepro.experiment_rows import Results, row_key
from gemmrepro.measurements import LIBRARY, is_current


class Missing(Exception):
    """There is no row that may support the claim; the message says why."""


@dataclass(frozen=True)
class Found:
    """The value at one point with its interval, and the rows behind it. Infinite where a quotient's divisor is zero."""

    point: str
    value: float
    low: float
    high: float
    rows: tuple[str, ...]


def _cell(results: Results, compute: Mapping[str, Any], kernel: str, toolkit: str, at: Mapping[str, Any]) -> Any:
    """(value, low, high, row) of one kernel at one point."""
    name, told = compute["value"], ", ".join(f"{key} {value}" for key, value in at.items())
    rows = results.of(kernel, toolkit, **at)
    what = f"{kernel} in the experiment {results.experiment.name}" + (f" at {told}" if told else "")
    if rows.empty:
        for left in results.run.get("skipped") or ():
            if left["kernel"] == kernel and left["toolkit"] in (toolkit, LIBRARY):
                raise Missing(f"{kernel} was left out of the experiment {results.experiment.name}: {left['reason']}")
        raise Missing(f"there is no row of {what}, by {toolkit}" if len(results.rows) else "the experiment was not run")
    current = rows[is_current(rows)]
    if current.empty:
        raise Missing(f"the only row of {what} is stale: it was taken from another build or another declaration")
    if len(current) > 1:
        raise Missing(f"{len(current)} rows are of {what}; the claim must name more columns")
    row = current.iloc[0]
    column = results.experiment.column(name)
    ends = [row[end] if end else row[name] for end in (column.low, column.high)]
    if pd.isna(row[name]):
        raise Missing(f"the row of {what} has no {name}")
    return float(row[name]), *(float(row[name]) if pd.isna(end) else float(end) for end in ends), row


def values(results: Results, compute: Mapping[str, Any], family: str, toolkit: str) -> tuple[list[Found], int]:
    """The claim's value at each of its points.

    Returns:
        (values, number of points left out because both sides of the quotient are zero there).

    Raises:
        Missing: a point has no row that may support a claim.
    """
    found, exact = [], 0
    for at in points(compute.get("where") or {}):
        told = ", ".join(str(value) if key == "law" else f"{key} {value}" for key, value in at.items())
        value, low, high, row = _cell(results, compute, compute["kernel"], toolkit, at)
        keys = [row_key(family, results.experiment.name, row, *at)]
        if "over" in compute:
            beside = {**at, **(compute.get("over_where") or {})}
            under, under_low, under_high, other = _cell(results, compute, compute["over"], toolkit, beside)
            keys.append(row_key(family, results.experiment.name, other, *beside))
            if value == 0 and under == 0:
                exact += 1
                continue
            value, low, high = (
                top / bottom if bottom else math.inf
                for top, bottom in ((value, under), (low, under_high), (high, under_low))
            )
        found.append(Found(told, value, low, high, tuple(keys)))
    return found, exact


def holds(found: Found, compute: Mapping[str, Any]) -> bool:
    """Whether the value, with its whole interval, lies within the claim's bounds."""
    return (
        found.low > compute.get("above", -math.inf)
        and found.low >= compute.get("least", -math.inf)
        and found.high <= compute.get("most", math.inf)
    )


def bounds(compute: Mapping[str, Any]) -> str:
    """The claim's bounds in words."""
    words = {"above": "above", "least": "at least", "most": "at most"}
    return " and ".join(f"{word} {compute[key]:g}" for key, word in words.items() if key in compute)


def tell(found: Sequence[Found], exact: int, compute: Mapping[str, Any]) -> str:
    """How the values lie, in one or two sentences."""
    what = f"{compute['value']} of {compute['kernel']}"
    if "over" in compute:
        elsewhere = ", ".join(f"{key} {value}" for key, value in (compute.get("over_where") or {}).items())
        what += f" over that of {compute['over']}" + (f" with {elsewhere}" if elsewhere else "")
    good = [each for each in found if holds(each, compute)]
    if len(found) == 1:
        said = f"{what} is {_text(found[0])}" + (f" at {found[0].point}" if found[0].point else "")
    else:
        least, most = (pick(found, key=lambda each: each.value) for pick in (min, max))
        where = "all" if len(good) == len(found) else f"{len(good)} of"
        said = f"{what} is {bounds(compute)} at {where} {len(found)} points"
        said += f", from {_text(least)} ({least.point}) to {_text(most)} ({most.point})"
    bad = [each for each in found if each not in good]
    if bad and len(found) > 1:
        named = ", ".join(f"{each.point}: {_text(each)}" for each in bad[:4])
        said += f"; not so at {named}" + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    if exact:
        said += f"; at {exact} more neither errs at all"
    return said


def _text(found: Found) -> str:
    return format_number(found.value) if math.isfinite(found.value) else "infinite (the divisor is 0)"
