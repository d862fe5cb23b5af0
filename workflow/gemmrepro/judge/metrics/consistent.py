"""Numbers of an article against each other: arithmetic on its published rows, without any measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro.core.text import as_published, format_number
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, Value
from gemmrepro.judge.expressions import evaluate, names_in
from gemmrepro.judge.metrics.base import TEXT, Exhibit, FigureMetric, Problem, Reading, Readings
from gemmrepro.judge.rules import CONSISTENT, CONTRADICTORY, Verdict, difference

_RELATIONS = {"equals": "equals", "below": "is below", "above": "is above"}


@dataclass(frozen=True)
class Consistent(FigureMetric):
    """An expression of named published rows, compared with another one: equal within the tolerance, below or above."""

    claim_schema = "consistent"
    way = "consistent"

    @property
    def compute_schema(self) -> Mapping[str, Any]:
        rows = {
            "description": "published rows by the names that the expressions use; n and d are those of the rows",
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {"enum": ["n", "d"]}},
            "additionalProperties": {"$ref": "#/$defs/published"},
        }
        expression = {"type": ["string", "number"], "minLength": 1}
        relations = {word: {**expression, "description": f"what `expect` {word}"} for word in _RELATIONS}
        return {
            "required": ["rows", "expect"],
            "properties": {
                "rows": rows,
                "expect": {**TEXT, "description": "numbers, names, + - * / ** ( )"},
                **relations,
            },
            "oneOf": [{"required": [word]} for word in _RELATIONS],
        }

    def check(self, claim: Claim) -> list[Problem]:
        problems = []
        relation, other = _relation(claim)
        for key in ("expect", relation):
            try:
                evaluate(str(claim.compute[key]), _values(claim))
            except ValueError as error:
                problems.append(Problem(f"compute.{key}", str(error)))
        if problems:
            return problems
        used = names_in(str(claim.compute["expect"])) | names_in(other)
        if idle := sorted(set(claim.compute["rows"]) - used):
            problems.append(Problem("compute.rows", f"neither side uses '{idle[0]}'"))
        if str(claim.compute["expect"]).strip() == other.strip():
            problems.append(Problem(f"compute.{relation}", "both sides are the same expression"))
        if (relation == "equals") != (claim.tolerance is not None):
            problems.append(
                Problem("tolerance", "stands with 'equals', for the digits that the article prints, and only there")
            )
        return problems

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return None

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        value = evaluate(str(claim.compute["expect"]), _values(claim))
        sources = tuple(f"published.csv: {row['article']}, {row['system']}, {row['metric']}" for row in claim.published)
        label = str(claim.compute["expect"])
        return Readings(Reading(None, (Value(label, value, value, value, self.unit, sources),)))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        value, other = readings.judged.value.value, _other(claim)
        relation, _ = _relation(claim)
        if relation == "equals":
            tolerance = claim.tolerance or 0.0
            holds = abs(value - other) <= tolerance * abs(other)
            reason = f"{'within' if holds else 'outside'} the {100 * tolerance:g}% that the printed digits allow"
        else:
            holds = value < other if relation == "below" else value > other
            reason = "as stated" if holds else "which the statement denies"
        return Verdict(CONSISTENT if holds else CONTRADICTORY, reason)

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        value, other = readings.judged.value.value, _other(claim)
        names = [f"{name} = {_shown(number)}" for name, number in _values(claim).items()]
        relation, text = _relation(claim)
        off = f", {difference(value, other)}" if relation == "equals" and other and value / other > 0 else ""
        return (
            f"With {', '.join(names)}: {claim.compute['expect']} is {format_number(value, 5)}, beside {text}"
            f"{'' if text == _shown(other) else f' = {_shown(other)}'}{off}: {verdict.reason}. Nothing was measured."
        )

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[Exhibit]:
        return [Exhibit(readings.judged.value, static=True)]


def _values(claim: Claim) -> dict[str, float]:
    """The published values by their names, and the n and d that all rows with one share."""
    values = {name: float(row["value"]) for name, row in zip(claim.compute["rows"], claim.published, strict=True)}
    for axis in ("n", "d"):
        sizes = {row[axis] for row in claim.published if row[axis] is not None}
        if len(sizes) == 1:
            values[axis] = float(sizes.pop())
    return values


def _relation(claim: Claim) -> tuple[str, str]:
    """``equals``, ``below`` or ``above``, and the expression on its other side."""
    return next((word, str(claim.compute[word])) for word in _RELATIONS if word in claim.compute)


def _other(claim: Claim) -> float:
    return evaluate(_relation(claim)[1], _values(claim))


def _shown(value: float) -> str:
    return as_published(value) if float(f"{value:.6g}") == value else format_number(value, 5)
