"""Arithmetic on hardware counters of one launch, within stated bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.expressions import evaluate, names_in
from gemmrepro.judge.metrics.base import TEXT, Problem, Readings, read_toolkits
from gemmrepro.judge.metrics.rows import KernelMetric
from gemmrepro.judge.rules import Verdict, judge_bounds


@dataclass(frozen=True)
class CounterArithmetic(KernelMetric):
    """The value of an expression of counters of one launch, which may have been read for one toolkit only."""

    claim_schema = "counters"

    @property
    def compute_schema(self) -> Mapping[str, Any]:
        counter = {"type": "array", "prefixItems": [TEXT, {"type": "string"}], "minItems": 2, "maxItems": 2}
        counters = {
            "description": "[counter, unit] by the names that `value` uses",
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {"const": "n"}},
            "additionalProperties": counter,
        }
        number = {"type": "number"}
        return {
            "required": ["kernel", "n", "counters", "value"],
            "properties": {
                "kernel": TEXT,
                "n": {"type": "integer", "minimum": 1, "description": "M = N = K"},
                "counters": counters,
                "value": {**TEXT, "description": "numbers, n, the counters' names, + - * / ** ( )"},
                **{"unit": {"type": "string"}, "least": number, "most": number},
            },
            "anyOf": [{"required": ["least"]}, {"required": ["most"]}],
        }

    def check(self, claim: Claim) -> list[Problem]:
        named, counters = claim.compute["value"], claim.compute["counters"]
        problems = super().check(claim)
        try:
            evaluate(named, {**dict.fromkeys(counters, 1.0), "n": 2.0})
            if idle := sorted(set(counters) - names_in(named)):
                problems.append(Problem("compute.counters", f"the value does not use '{idle[0]}'"))
        except ValueError as error:
            problems.append(Problem("compute.value", str(error)))
        return problems

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        return read_toolkits(self, claim, evidence, any_toolkit=True)

    def of_kernel(self, kernel: str, claim: Claim, evidence: Evidence, toolkit: str) -> Value:
        compute = claim.compute
        n = compute["n"]
        read = {
            name: evidence.counter(kernel, n, counter, toolkit, unit)
            for name, (counter, unit) in compute["counters"].items()
        }
        try:
            value = evaluate(compute["value"], {**{name: part.value for name, part in read.items()}, "n": float(n)})
        except ValueError as error:
            raise NotMeasured(f"of the counters of {kernel}, {error}") from None
        sources = tuple(source for part in read.values() for source in part.sources)
        label = f"{kernel}, {n}, {toolkit}: {compute['value']}"
        return Value(label, value, value, value, compute.get("unit", ""), sources)

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        return judge_bounds(readings.judged.value.value, claim.compute)
