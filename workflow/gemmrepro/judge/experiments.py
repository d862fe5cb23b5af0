"""What an experiment's rows say to a claim: a column's value for one kernel, or its quotient with that for another.

A claim's ``compute`` names the experiment, the column `value`, the `kernel`, perhaps another one `over` which it is
divided, the points `where` it is asked, and the bounds: `above`, `least`, `most`. In the columns of `over_where`
the row that is divided by has the values given there instead of the point's.

A claim on many published rows gives the columns `by` which a row of them finds its point, `n` for one; ``{d}`` in
`kernel` stands for the row's d. Each value is then held against its own row, `near` it (relative) or within a `factor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.judge.claims import points
from gemmrepro.measure.rows import is_current


class Missing(Exception):
    """There is no row that may support the claim; the message says why."""


@dataclass(frozen=True)
class Found:
    """The value at one point with its interval, and the rows behind it. Infinite where a quotient's divisor is zero.

    `published` is what the article gives for the point, in the column's unit.
    """

    point: str
    value: float
    low: float
    high: float
    rows: tuple[str, ...]
    published: float | None = None


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


UNITS = {("ms", "µs"): 1000.0}
"""What a published value in the one unit is multiplied by to be in the other."""


def _asked(
    compute: Mapping[str, Any], published: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[dict[str, Any], str, Mapping[str, Any] | None]]:
    """Each point, the kernel that it is asked of, and the published row that gave it."""
    if "by" not in compute:
        yield from ((at, compute["kernel"], None) for at in points(compute.get("where") or {}))
    for row in published if "by" in compute else ():
        at = {**(compute.get("where") or {}), **{column: row[column] for column in compute["by"]}}
        yield at, compute["kernel"].format(d=row["d"]), row


def values(
    results: Results,
    compute: Mapping[str, Any],
    family: str,
    toolkit: str,
    published: Sequence[Mapping[str, Any]] = (),
) -> tuple[list[Found], int]:
    """The claim's value at each of its points.

    Args:
        published: its rows of published.csv, which give the points where it says `by` which columns.

    Returns:
        (values, number of points left out because both sides of the quotient are zero there).

    Raises:
        Missing: a point has no row that may support a claim.
    """
    found, exact = [], 0
    unit = results.experiment.column(compute["value"]).unit
    for at, kernel, source in _asked(compute, published):
        told = ", ".join(str(value) if key == "law" else f"{key} {value}" for key, value in at.items())
        if kernel != compute["kernel"] and source is not None:
            told += f", d {source['d']}"
        value, low, high, row = _cell(results, compute, kernel, toolkit, at)
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
        given = None if source is None else source["value"] * UNITS.get((source["unit"], unit), 1.0)
        found.append(Found(told, value, low, high, tuple(keys), given))
    return found, exact


def holds(found: Found, compute: Mapping[str, Any]) -> bool:
    """Whether the value, with its whole interval, lies within the claim's bounds, or near its published one."""
    if found.published is not None and ("near" in compute or "factor" in compute):
        share = compute.get("near", 0.0)
        factor = compute.get("factor", 1.0)
        least, most = sorted((found.published * (1 - share) / factor, found.published * (1 + share) * factor))
        return least <= found.low and found.high <= most
    return (
        found.low > compute.get("above", -math.inf)
        and found.low >= compute.get("least", -math.inf)
        and found.high <= compute.get("most", math.inf)
    )


def bounds(compute: Mapping[str, Any]) -> str:
    """The claim's bounds in words."""
    if "near" in compute:
        return f"within {100 * compute['near']:g} % of the published value" if compute["near"] else "as published"
    if "factor" in compute:
        return f"within a factor of {compute['factor']:g} of the published value"
    words = {"above": "above", "least": "at least", "most": "at most"}
    return " and ".join(f"{word} {compute[key]:g}" for key, word in words.items() if key in compute)


def tell(found: Sequence[Found], exact: int, compute: Mapping[str, Any]) -> str:
    """How the values lie, in one or two sentences."""
    what = f"{compute['value']} of {compute['kernel']}"
    if "over" in compute:
        elsewhere = ", ".join(f"{key} {value}" for key, value in (compute.get("over_where") or {}).items())
        what += f" over that of {compute['over']}" + (f" with {elsewhere}" if elsewhere else "")
    good = [each for each in found if holds(each, compute)]
    if "by" in compute:
        beside = [f"{_text(each)} (published {format_number(each.published or 0.0)}) at {each.point}" for each in found]
        asked = f" {bounds(compute)} at {len(good)} of {len(found)} points" if bounds(compute) else ""
        return f"{what} is{asked}{': ' if asked else ' '}{'; '.join(beside)}"
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
