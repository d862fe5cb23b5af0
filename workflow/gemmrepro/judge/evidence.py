"""The evidence for verdicts: a family's rows, counters, build records and gates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.build.record import Build, find_build
from gemmrepro.core.files import read_json
from gemmrepro.core.text import convert, format_number
from gemmrepro.experiments.results import Results
from gemmrepro.judge.wording import title
from gemmrepro.measure.rows import Measurements, counter_key, is_current, select
from gemmrepro.operations import shape_of


@dataclass(frozen=True)
class Value:
    """A measured number with its 95% interval (equal to the value where the source gives none).
    `label` says what was measured under which conditions, ``kernel, n, cache, toolkit``; `sources` names the rows.
    `took` has the two times behind a ratio: ``3.52 ms where cuBLAS takes 2.69 ms``."""

    label: str
    value: float
    ci_low: float
    ci_high: float
    unit: str
    sources: tuple[str, ...]
    took: str = ""

    @property
    def name(self) -> str:
        """The kernel, or kernels, that the value belongs to."""
        return self.label.split(",", 1)[0]

    @property
    def conditions(self) -> str:
        """The part of the label after the name."""
        words = {"warm": "warm cache", "cold": "cold cache"}
        parts = self.label.split(", ")[1:]
        return ", ".join(f"n = {part}" if part.isdigit() else words.get(part, part) for part in parts)

    def as_json(self) -> dict[str, Any]:
        """Its entry in verdicts.json, with null for an infinity, which JSON lacks."""
        numbers = {"value": self.value, "ci_low": self.ci_low, "ci_high": self.ci_high}
        finite = {key: None if abs(number) == math.inf else number for key, number in numbers.items()}
        return {"label": self.label, **finite, "unit": self.unit, "from": list(self.sources)}

    def text(self) -> str:
        """``0.33 [0.32, 0.34] TFLOP/s``; the interval is left out where there is none."""
        unit = "" if self.unit in ("ratio", "count", "") else f" {self.unit}"
        if self.ci_low == self.ci_high:
            return format_number(self.value) + unit
        for digits in (3, 4, 5):
            value, low, high = (format_number(x, digits) for x in (self.value, self.ci_low, self.ci_high))
            if low != high:
                break
        return f"{value} [{low}, {high}]{unit}"


class NotMeasured(Exception):
    """There is no row that may support a claim; the message says why."""


@dataclass(frozen=True)
class Evidence:
    """The evidence that a family's claims are judged on.

    `gates` holds the gate verdicts by kernel id; `ceilings` the measurements of the family of micro-kernels; `regimes`
    the rows of the regimes that have some, in place of those in turn; `lacking` what kernels need that the GPU lacks.
    """

    measured: Measurements
    gates: Mapping[str, Mapping[str, Any]]
    build_dir: Path
    experiments: Mapping[str, Results] = field(default_factory=dict)
    ceilings: Measurements | None = None
    regimes: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)

    def within(self, regime: str) -> Evidence:
        """The same evidence with the rows of a regime; without any, its own."""
        if regime not in self.regimes:
            return self
        return replace(self, measured=replace(self.measured, summary=self.regimes[regime]))

    def toolkits(self, preferred: Sequence[str]) -> list[str]:
        """`preferred`, with the toolkits that have current rows of the family first."""
        have = set(self.measured.summary.loc[is_current(self.measured.summary), "toolkit"])
        return sorted(preferred, key=lambda toolkit: (toolkit not in have, preferred.index(toolkit)))

    def check_gate(self, kernel: str) -> None:
        """Raises NotMeasured for a kernel that failed its gate."""
        gate = self.gates.get(kernel)
        if gate is not None and gate.get("passed") is False:
            raise NotMeasured(f"{kernel} failed its gate, so its rows count for nothing")

    def check_runs(self, kernel: str) -> None:
        """Raises NotMeasured for a kernel that cannot run on this GPU, or failed its gate."""
        if needs := self.lacking.get(kernel):
            raise NotMeasured(f"this GPU cannot run {kernel}, which needs {needs}")
        self.check_gate(kernel)

    def _pick(self, table: pd.DataFrame, subject: str) -> pd.Series:
        if table.empty:
            raise NotMeasured(f"there is no row of {subject}")
        current = table[is_current(table)]
        if current.empty:
            keys = ", ".join(sorted({key for key in table["build_key"] if key}))
            raise NotMeasured(
                f"the only row of {subject} is stale: it was taken from another build or launch of the kernel "
                f"(build key {keys})"
            )
        return current.iloc[-1]

    def row(self, kernel: str, n: int, cache: str, toolkit: str) -> pd.Series:
        """The current summary row at size `n` (`operations.shape_of`). Raises NotMeasured."""
        rows = self.measured.summary
        self.check_runs(kernel)
        shape = shape_of(registry.kernel(kernel).compute.op, n)
        why = [
            f"the sweep left out {kernel}: {entry['reason']}"
            for entry in self.measured.run.get("skipped") or ()
            if (entry["kernel"], entry["toolkit"]) == (kernel, toolkit) and str(shape) in entry["reason"]
        ]
        if rows.empty:
            raise NotMeasured(why[0] if why else f"the family {self.measured.family} has no measurements")
        found = select(rows, kernel=kernel, toolkit=toolkit, cache=cache, m=shape.m, n=shape.n, k=shape.k)
        if why and found.empty:
            raise NotMeasured(why[0])
        return self._pick(found, f"{kernel} at {n}, {cache}, built by {toolkit}")

    def counter(self, kernel: str, n: int, metric: str, toolkit: str, unit: str) -> Value:
        """A hardware counter at M = N = K = `n`, in `unit`. Raises NotMeasured."""
        rows = self.measured.counters
        self.check_runs(kernel)
        if rows.empty:
            raise NotMeasured("no hardware counters were read (the profiler could not be used)")
        found = select(rows, kernel=kernel, toolkit=toolkit, metric=metric, m=n, n=n, k=n)
        row = self._pick(found, f"counter {metric} for {kernel} at {n}, built by {toolkit}")
        value = convert(row["value"], row["unit"], unit)
        if value is None or pd.isna(value):
            raise NotMeasured(f"counter {metric} of {kernel} is in '{row['unit']}', which is not a multiple of {unit}")
        return Value(f"{kernel}, {n}, {toolkit}", value, value, value, unit, ("counters:" + counter_key(row),))

    def open_gates(self, kernels: Sequence[str], toolkit: str) -> list[tuple[str, str]]:
        """The kernels whose numerical gate has not passed for this toolkit's binary, each with its status or need."""
        still_open = []
        for kernel in kernels:
            gate = (self.gates.get(kernel) or {}).get("toolkits", {}).get(toolkit) or {}
            status = (gate.get("numeric") or {}).get("status")
            if status not in ("passed", None):
                needs = self.lacking.get(kernel)
                still_open.append((kernel, f"needs {needs}" if needs else str(status)))
        return still_open

    def library(self, baseline: str) -> str:
        """A baseline with the version of its run: ``cuBLAS 13.1.0``."""
        name = title(baseline)
        versions = self.measured.run.get("libraries") or {}
        library = next((library for library in versions if name.startswith(library)), None)
        return name.replace(library, f"{library} {versions[library]}", 1) if library else name

    def build(self, kernel: str, toolkit: str) -> Build | None:
        """The build record, or None if the kernel was not built. Raises UserError if the record is corrupt."""
        return find_build(kernel, self.build_dir, toolkit)


def joined(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several families as one, with the run and the experiments of the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    tables = {
        name: pd.concat([getattr(part.measured, name) for part in parts], ignore_index=True)
        for name in ("summary", "counters")
    }
    shared = [regime for regime in first.regimes if all(regime in part.regimes for part in parts)]
    return replace(
        first,
        measured=replace(first.measured, **tables),
        gates={kernel: gate for part in parts for kernel, gate in part.gates.items()},
        regimes={regime: pd.concat([part.regimes[regime] for part in parts], ignore_index=True) for regime in shared},
        lacking={kernel: needs for part in parts for kernel, needs in part.lacking.items()},
    )


def load_gates(gates_dir: Path | str, kernel_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The gate verdicts that exist, by kernel id. Raises UserError if one is corrupt."""
    gates = {}
    for kernel_id in kernel_ids:
        path = Path(gates_dir) / f"{kernel_id}.json"
        if path.is_file():
            gates[kernel_id] = read_json(path, "the gate verdict", "run the gate again")
    return gates
