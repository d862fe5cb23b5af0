"""Numbers of an article against each other: arithmetic on its published rows, without any measurement."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gemmrepro.core.text import as_published, format_number
from gemmrepro.judge.carrying import evaluate, names_in
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, Value
from gemmrepro.judge.metrics.base import FigureMetric, Reading, Readings, exhibit
from gemmrepro.judge.rules import CONSISTENT, CONTRADICTORY, Verdict, difference

_CELLS = ("article", "system", "metric", "n", "d", "dtype", "table", "hardware")
"""The keys that pick a published row."""

_TIMES = "\N{MULTIPLICATION SIGN}"

_RELATIONS = ("equals", "below", "above")


class _Case(NamedTuple):
    """The published values of a case by name, both sides, whether the relation holds, and how far it is from that.
    A case with a larger `strain` is nearer to not holding, or farther beyond."""

    values: Mapping[str, float]
    value: float
    other: float
    holds: bool
    strain: float


@dataclass(frozen=True)
class Consistent(FigureMetric):
    """An expression of named published rows, compared with another one: equal within the tolerance, below or above."""

    way = "consistent"

    def check(self, claim: Claim) -> list[Problem]:
        problems = []
        compute, (relation, other) = claim.compute, _relation(claim)
        expect, rows = str(compute["expect"]), set(compute["rows"])
        if strange := sorted({name for case in compute.get("each", ()) for name in case} - {*_CELLS, *rows}):
            problems.append(("compute.each", f"there is no row '{strange[0]}'"))
        for key in ("expect", relation):
            try:
                for values in _values(claim):
                    evaluate(str(compute[key]), values)
            except ValueError as error:
                problems.append((f"compute.{key}", str(error)))
        if problems:
            return problems
        if idle := sorted(rows - names_in(expect) - names_in(other)):
            problems.append(("compute.rows", f"neither side uses '{idle[0]}'"))
        if expect.strip() == other.strip():
            problems.append((f"compute.{relation}", "both sides are the same expression"))
        if (relation == "equals") != (claim.tolerance is not None):
            where = "stands with 'equals', for the digits that the article prints, and only there"
            problems.append(("tolerance", where))
        return problems

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return None

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        value, label = _cases(claim)[0].value, str(claim.compute["expect"])
        sources = tuple(f"articles/{row['article']}: {row['system']}, {row['metric']}" for row in claim.published)
        return Readings(Reading(None, (Value(label, value, value, value, self.unit, sources),)))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        cases = _cases(claim)
        right = sum(case.holds for case in cases)
        wrong = right < len(cases)
        reason = "against the statement" if wrong else "as stated"
        if _relation(claim)[0] == "equals":
            reason = f"{'outside' if wrong else 'within'} the {100 * (claim.tolerance or 0):g}% allowed"
        if len(cases) > 1 and wrong:
            reason += f"; it holds in {right} of {len(cases)} cases"
        return Verdict(CONTRADICTORY if wrong else CONSISTENT, reason)

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        cases, (relation, text) = _cases(claim), _relation(claim)
        case = cases[0]
        signs = relation == "equals" and case.other and case.value / case.other > 0
        off = f", {difference(case.value, case.other)}" if signs else ""
        beside = f", {'' if case.holds else 'not '}{relation} " if relation != "equals" else ", beside "
        among = f"Of {len(cases)} cases the one that is furthest off: " if len(cases) > 1 else ""
        left = _worked_out(str(claim.compute["expect"]), case.value, case.values)
        right = _worked_out(text, case.other, case.values)
        return f"{among}{left}{beside}{right}{off}: {verdict.reason}. Nothing was measured."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[dict[str, Any]]:
        return [exhibit(readings.judged.value, static=True)]


def references(compute: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """References to the published rows of every case, one after the other in the order of `rows`.
    A case of `each` adds its plain keys to every row that lacks them, and those under a row's name to that row."""
    picked: list[Mapping[str, Any]] = []
    cases: list[Mapping[str, Any]] = compute.get("each") or [{}]
    for case in cases:
        common = {key: value for key, value in case.items() if not isinstance(value, Mapping)}
        picked += [{**common, **keys, **case.get(name, {})} for name, keys in compute["rows"].items()]
    return picked


def _values(claim: Claim) -> list[dict[str, float]]:
    """Of each case the published values by their names, and the n and d that all its rows with one share."""
    names = list(claim.compute["rows"])
    found = []
    for start in range(0, len(claim.published), len(names)):
        rows = claim.published[start : start + len(names)]
        values = {name: float(row["value"]) for name, row in zip(names, rows, strict=True)}
        for axis in ("n", "d"):
            sizes = {row[axis] for row in rows if row[axis] is not None}
            if len(sizes) == 1:
                values[axis] = float(sizes.pop())
        found.append(values)
    return found


def _cases(claim: Claim) -> list[_Case]:
    """Every case, the one that is furthest off first."""
    relation, text = _relation(claim)
    found = []
    for values in _values(claim):
        value, other = evaluate(str(claim.compute["expect"]), values), evaluate(text, values)
        off = (value - other) / (abs(other) or 1.0)
        if relation == "equals":
            holds, strain = abs(value - other) <= (claim.tolerance or 0.0) * abs(other), abs(off)
        else:
            holds, strain = (value < other, off) if relation == "below" else (value > other, -off)
        found.append(_Case(values, value, other, holds, strain))
    return sorted(found, key=lambda case: -case.strain)


def _relation(claim: Claim) -> tuple[str, str]:
    """``equals``, ``below`` or ``above``, and the expression on its other side."""
    return next((word, str(claim.compute[word])) for word in _RELATIONS if word in claim.compute)


def _worked_out(expression: str, result: float, values: Mapping[str, float]) -> str:
    """An expression with its numbers in it, and what it makes: ``309 / 0.013 = 23,769``."""
    text = re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda found: _shown(values[found[0]]), expression)
    text = re.sub(r"(?<![\d.,])\d{4,}(?![\d.])", lambda found: f"{int(found[0]):,}", text)
    text = text.replace("**", "^").replace("*", _TIMES)
    return text if text == _shown(result) else f"{text} = {format_number(result, 5)}"


def _shown(value: float) -> str:
    return as_published(value) if float(f"{value:.6g}") == value else format_number(value, 5)
