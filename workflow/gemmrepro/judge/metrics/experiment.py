"""Claims that rest on an experiment: a statement about every point, or a published figure at one.

``compute`` names the experiment, the column `value`, the `kernel`, optionally a kernel `over` whose value divides it,
the points `where` it is read, and the bounds `above`, `least`, `most`. `over_where` gives the divisor's row other
values.

A claim on many published rows gives the columns `by` which each picks its point, `n` for one; ``{d}`` in `kernel`
stands for the row's d. Each value is compared with its own row, `near` it (relative) or within a `factor`.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from gemmrepro import experiments
from gemmrepro.core.names import LIBRARY
from gemmrepro.core.text import filled_in, format_number
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results, row_key
from gemmrepro.judge.carrying import unit_factor
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import (
    FigureMetric,
    Reading,
    Readings,
    carried_over,
    exhibit,
    expected,
    gate_note,
    on_hardware,
    unknown_kernels,
)
from gemmrepro.judge.rules import NOT_TESTABLE, UNDECIDED, Verdict, difference, of_many
from gemmrepro.judge.wording import sentence, title
from gemmrepro.measure.rows import is_current


@dataclass(frozen=True)
class PointValue(Value):
    """The value at one point of an experiment; infinite where a quotient's divisor is zero.
    `point` names it by its cells, ``n 4096, d 9``; `published` is the article's value, in the column's unit, and
    `expected` that value carried over to the GPU at hand, where it is."""

    point: str = ""
    published: float | None = None
    expected: float | None = None

    @property
    def number(self) -> str:
        """The value as text, without interval and unit."""
        return format_number(self.value) if math.isfinite(self.value) else "infinite (the divisor is 0)"


def combinations(where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the values that `where` gives its columns; a list contributes each of its values."""
    lists = [values if isinstance(values, list) else [values] for values in where.values()]
    return [dict(zip(where, values, strict=True)) for values in product(*lists)]


Point = tuple[dict[str, Any], str, Mapping[str, Any] | None]
"""Where a value is read: the cells that pick the row, the kernel, and the published row that gave the point."""


def _points(claim: Claim) -> Iterator[Point]:
    compute, where = claim.compute, claim.compute.get("where") or {}
    if "by" not in compute:
        yield from ((cells, compute["kernel"], None) for cells in combinations(where))
        return
    for row in claim.published:
        cells = {**where, **{column: row[column] for column in compute["by"]}}
        yield cells, filled_in(compute["kernel"], {"d": row["d"]}), row


def _value_at(results: Results, claim: Claim, toolkit: str, point: Point) -> PointValue | None:
    """The value at one point; None where both sides of the quotient are zero. Raises NotMeasured."""
    (cells, kernel, row), compute, name = point, claim.compute, results.experiment.name
    unit = results.experiment.column(compute["value"]).unit
    published = None if row is None else float(row["value"]) * unit_factor(str(row["unit"]), unit)
    value, low, high, read = _cell(results, compute["value"], kernel, toolkit, cells)
    keys = [row_key(claim.family, name, read, *cells)]
    if claim.tolerance is not None:
        unit = unit or "ratio"
    if "over" in compute:
        over_cells, unit = {**cells, **(compute.get("over_where") or {})}, "ratio"
        over, over_low, over_high, over_row = _cell(results, compute["value"], compute["over"], toolkit, over_cells)
        keys.append(row_key(claim.family, name, over_row, *over_cells))
        if value == 0 and over == 0:
            return None
        pairs = (value, over), (low, over_high), (high, over_low)
        value, low, high = (above / below if below else math.inf for above, below in pairs)
    # The operands' distribution, in the column `law`, needs no heading.
    place = [str(cell) if column == "law" else f"{column} {cell}" for column, cell in cells.items()]
    if row is not None and kernel != compute["kernel"]:
        place.append(f"d {row['d']}")
    label = ", ".join([*place, *([toolkit] if results.toolkit else [])])
    return PointValue(label, value, low, high, unit, tuple(keys), point=", ".join(place), published=published)


def _cell(
    results: Results, column_name: str, kernel: str, toolkit: str, cells: Mapping[str, Any]
) -> tuple[float, float, float, pd.Series]:
    """One kernel's value at one point, the ends of its interval, and its row. Raises NotMeasured."""
    place = ", ".join(f"{column} {value}" for column, value in cells.items())
    what = f"{kernel} in the experiment {results.experiment.name}" + (f" at {place}" if place else "")
    rows = results.of(kernel, toolkit, **cells)
    if rows.empty:
        raise NotMeasured(_why_absent(results, kernel, toolkit, what))
    current = rows[is_current(rows)]
    if current.empty:
        raise NotMeasured(f"the only row of {what} is stale: it was taken from another build or another declaration")
    if len(current) > 1:
        raise NotMeasured(f"{len(current)} rows are of {what}; the claim must name more columns")
    row = current.iloc[0]
    if pd.isna(row[column_name]):
        raise NotMeasured(f"the row of {what} has no {column_name}")
    value = float(row[column_name])
    column = results.experiment.column(column_name)
    low, high = (value if not end or pd.isna(row[end]) else float(row[end]) for end in (column.low, column.high))
    return value, low, high, row


def _why_absent(results: Results, kernel: str, toolkit: str, what: str) -> str:
    for skipped in results.run.get("skipped") or ():
        if skipped["kernel"] == kernel and skipped["toolkit"] in (toolkit, LIBRARY):
            return f"{kernel} was left out of the experiment {results.experiment.name}: {skipped['reason']}"
    return f"there is no row of {what}, by {toolkit}" if len(results.rows) else "the experiment was not run"


def inside(value: PointValue, compute: Mapping[str, Any]) -> bool | None:
    """Whether the value, with its whole interval, lies within the claim's bounds or near its published one.
    None where some values of the interval do and some do not."""
    above, least, most = compute.get("above", -math.inf), compute.get("least", -math.inf), compute.get("most", math.inf)
    wanted = value.published if value.expected is None else value.expected
    if wanted is not None and ("near" in compute or "factor" in compute):
        share, factor = compute.get("near", 0.0), compute.get("factor", 1.0)
        above, (least, most) = -math.inf, sorted((wanted * (1 - share) / factor, wanted * (1 + share) * factor))
    if value.ci_low > above and value.ci_low >= least and value.ci_high <= most:
        return True
    return None if value.ci_high > above and value.ci_high >= least and value.ci_low <= most else False


def bounds_text(compute: Mapping[str, Any], beside: str = "published") -> str:
    """The claim's bounds in words; '' where it has none.
    `beside`: ``published``, or ``expected`` where published values carry over by rates."""
    if "near" in compute:
        return f"within {100 * compute['near']:g} % of the {beside} value" if compute["near"] else f"as {beside}"
    if "factor" in compute:
        return f"within a factor of {compute['factor']:g} of the {beside} value"
    if "least" in compute and compute["least"] == compute.get("most"):
        return f"exactly {compute['least']:g}"
    words = {"above": "above", "least": "at least", "most": "at most"}
    return " and ".join(f"{word} {compute[key]:g}" for key, word in words.items() if key in compute)


def describe(values: Sequence[PointValue], exact: int, compute: Mapping[str, Any], meaning: str, machine: str) -> str:
    """The values in relation to the bounds, as a sentence without its full stop.
    `meaning`: of the column; ``1: it was refused; 0: not`` is answered by yes or no. `machine`: that measured it."""
    flag = re.match(r"1: ([^;]*)", meaning)
    subject = sentence(flag[1] if flag else meaning)
    kernel = title(compute["kernel"]) if "{" not in compute["kernel"] else "each number of slices"
    if "by" in compute:
        return f"{subject}, for {kernel} on {machine}: {_each_with_published(values, compute)}"
    divisor = ""
    if "over" in compute:
        elsewhere = ", ".join(f"{key} {value}" for key, value in (compute.get("over_where") or {}).items())
        divisor = f" times that of {title(compute['over'])}" + (f" ({elsewhere})" if elsewhere else "")
    if len(values) > 1:
        text = f"{subject}{divisor}, for {kernel} on {machine}: {_range_of(values, compute)}"
    else:
        (value,) = values
        number = value.text() if math.isfinite(value.value) else value.number
        number += f" {compute['unit']}" if "unit" in compute else ""
        if flag and value.value in (0, 1):
            number = ("no", "yes")[int(value.value)]
        at = f" ({value.point})" if value.point else ""
        wanted = "" if flag else f"; the rule wants {bounds_text(compute)}"
        text = f"{subject}: {number}{divisor} for {kernel}{at} on {machine}{wanted}"
    return text + (f"; at {exact} more neither errs at all" if exact else "")


def _each_with_published(values: Sequence[PointValue], compute: Mapping[str, Any]) -> str:
    """Every value with the published one of its point, and with what is expected here where that differs."""
    pairs = []
    for value in values:
        carried = "" if value.expected is None else f", expected here {format_number(value.expected)}"
        pairs.append(f"{value.number} (published {format_number(value.published or 0.0)}{carried}) at {value.point}")
    beside = "published" if all(value.expected is None for value in values) else "expected"
    bounds, missed = bounds_text(compute, beside), [value for value in values if not inside(value, compute)]
    good = f"{bounds} at {len(values) - len(missed)} of {len(values)} points{_side(missed, beside)}: "
    return (good if bounds else "") + "; ".join(pairs)


def _side(missed: Sequence[PointValue], beside: str) -> str:
    """``, shorter than expected at every point that misses``, if all values that miss lie on one side; else ''."""
    below = {value.value < (value.published or 0.0 if value.expected is None else value.expected) for value in missed}
    if len(below) != 1:
        return ""
    time = missed[0].unit in ("s", "ms", "µs", "us")
    words = ("shorter", "longer") if time else ("smaller", "larger")
    return f", {words[0 if True in below else 1]} than {beside} at every point that misses"


def _range_of(values: Sequence[PointValue], compute: Mapping[str, Any]) -> str:
    """At how many points the bounds hold, the smallest and the largest value, and the first that miss them."""
    least, most = (pick(values, key=lambda value: value.value) for pick in (min, max))
    bad = [value for value in values if not inside(value, compute)]
    where = f"{len(values) - len(bad)} of" if bad else "all"
    text = (
        f"{bounds_text(compute)} at {where} {len(values)} points"
        f", from {least.number} ({least.point}) to {most.number} ({most.point})"
    )
    if bad:
        named = ", ".join(f"{value.point}: {value.number}" for value in bad[:4])
        text += f"; not so at {named}" + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    return text


@dataclass(frozen=True)
class ExperimentColumn(FigureMetric):
    """A column of an experiment: compared with a published figure where the claim has a tolerance, else with bounds."""

    def check(self, claim: Claim) -> list[Problem]:
        compute, where = claim.compute, claim.compute.get("where") or {}
        problems: list[Problem] = []
        if claim.tolerance is not None and len(combinations(where)) > 1:
            problems.append(("compute.where", "a figure is compared at one point"))
        if claim.transfer["kind"] != "none" and any(row["unit"] == "count" for row in claim.published):
            why = "integer counts are compared exactly: near: 0"
            problems += [(f"compute.{key}", why) for key in ("near", "factor") if compute.get(key)]
        libraries: Collection[str] = ()
        try:
            experiment = experiments.experiment(claim.family, compute["experiment"])
            for column in (compute["value"], *where, *(compute.get("over_where") or {}), *compute.get("by", ())):
                experiment.column(column)
            libraries = experiment.libraries
        except UserError as error:
            problems.append(("compute", str(error).rstrip(".")))
        return problems + unknown_kernels(claim, libraries)

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return _results(claim, evidence).machine

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        """The reading of the first toolkit that has every point. Raises NotMeasured with the last toolkit's reason."""
        reason = NotMeasured(f"the experiment {claim.compute['experiment']} was not run")
        for toolkit in claim.toolkits:
            try:
                return Readings(self.measure(claim, evidence, toolkit))
            except NotMeasured as error:
                reason = error
        raise reason

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        results = _results(claim, evidence)
        for kernel in claim.kernels:
            evidence.check_runs(kernel)
        found = [_value_at(results, claim, toolkit, point) for point in _points(claim)]
        values = tuple(value for value in found if value is not None)
        exact = len(found) - len(values)
        if not values:
            raise NotMeasured(f"at all {exact} points neither errs at all")
        by = toolkit if results.toolkit else None  # libraries have rows by no toolkit
        return Reading(by, values, exact)

    def untestable(self, claim: Claim, readings: Readings | None, machine: str | None) -> str | None:
        return super().untestable(claim, readings, machine) if readings is not None else None

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        if claim.tolerance is not None:
            return super().judge(claim, readings)
        values = _expected_points(claim, readings)
        found = [inside(value, claim.compute) for value in values]
        right = found.count(True)
        return Verdict(of_many(right, found.count(None), len(values)), f"{right} of {len(values)} points")

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        machine = self.machine(claim, evidence) or "this machine"
        if claim.tolerance is None:
            values = _expected_points(claim, readings)
            column = _results(claim, evidence).experiment.column(claim.compute["value"])
            text = describe(values, readings.judged.exact, claim.compute, column.meaning, machine)
            carried = ""
            if readings.carried is not None:
                first = readings.judged.value
                back = unit_factor(first.unit, str(claim.published[0]["unit"]))
                of_first = replace(claim, published=claim.published[:1])
                carried = f" Of the first point: {readings.carried.sentence(of_first, first.value * back)}."
            open_yet = f" {_crossing(values, claim)}" if verdict.kind == UNDECIDED else ""
            return f"{text}.{open_yet}{carried}{gate_note(claim, evidence, readings.judged.toolkit)}"
        value = readings.judged.value
        text = f"Published {claim.figure_with_unit}{on_hardware(claim)}; measured {value.text()} on {machine}"
        text += f" ({value.label})" if value.label else ""
        if verdict.kind == NOT_TESTABLE:
            return f"{text}. {verdict.reason}"
        if readings.carried is not None:
            return f"{text}. {carried_over(claim, readings)}: {verdict.reason}."
        return f"{text}, {difference(value.value, expected(claim, readings))}: {verdict.reason}."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[dict[str, Any]]:
        """The figure; of many points, the one that contradicts the claim most."""
        compute = claim.compute
        from_above = "most" in compute and not {"above", "least"} & set(compute)
        worst = (max if from_above else min)(readings.judged.values, key=lambda value: value.value)
        shown = readings.judged.value if claim.tolerance is not None else worst
        return [exhibit(shown, experiment=compute["experiment"])]


def _results(claim: Claim, evidence: Evidence) -> Results:
    """The experiment's rows. Raises NotMeasured."""
    name = claim.compute["experiment"]
    if name not in evidence.experiments:
        raise NotMeasured(f"the experiment {name} was not run")
    return evidence.experiments[name]


def _expected_points(claim: Claim, readings: Readings) -> list[PointValue]:
    """The values, with what is expected at each point where published values carry over by rates."""
    values = [value for value in readings.judged.values if isinstance(value, PointValue)]
    if readings.carried is None:
        return values
    factor = readings.carried.factor(str(claim.published[0]["unit"]))
    return [value if value.published is None else replace(value, expected=value.published * factor) for value in values]


def _crossing(values: Sequence[PointValue], claim: Claim) -> str:
    """The intervals that hold values within the claim's bounds and values outside of them, as a sentence."""
    parts = [
        f"[{format_number(value.ci_low)}, {format_number(value.ci_high)}]{f' at {value.point}' if value.point else ''}"
        for value in values
        if inside(value, claim.compute) is None
    ]
    return f"The interval crosses the bound: {'; '.join(parts)}."
