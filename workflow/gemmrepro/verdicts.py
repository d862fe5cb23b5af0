"""Judges every claim from measurement rows: ``results/verdicts.json``.

The rules, which the report prints as well:

* A value is *reproduced* when its 95% interval overlaps [p(1-t), p(1+t)], with p the published value and t the claim's
  tolerance, and is not itself wider than that band.
* It is *partly* reproduced when it misses the band but holds what the claim's ``partly`` asks for: the interval lies on
  the same side of a number (1: a gain stays a gain), or the value lies within a factor.
* An order is reproduced when every neighbouring pair is in the published order with intervals apart, partly when more
  than half of the pairs are.
* A claim with transfer "none" is judged on the published hardware only; elsewhere it is *not testable here*.
* A share of the peak is taken of a ceiling that this GPU was measured to have, never of a data sheet.
* A statement about machine code is *reproduced* when the instruction stands in it as often as stated, in every build.
* A statement that one kernel is the faster is *reproduced* when the whole interval of the quotient says so.
* A statement about an experiment is *reproduced* when it holds at every point asked for, intervals included, and partly
  when at more than half of them. Of many published values each is held against its own point.
* A statement about the length of sources is *reproduced* when the quotient of their lines of code lies in the stated
  range, and partly when it lies on the same side of 1.
* A figure of an experiment is judged as any other is, within its claim's tolerance.
* Where the article gives no figure, what was measured is shown, and the claim is *not testable here*.
* A level is judged with the article's constants; what tuning makes of it stands beside.
* Rows that are stale, or whose kernel failed its gate, support nothing: without other rows a claim is *not measured*.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import ceilings as physical
from gemmrepro import claims as claims_module
from gemmrepro import experiment_claims, experiment_rows, lines, registry, rungs
from gemmrepro.claims import Claim, format_number
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import read_json, write_json
from gemmrepro.measurements import Measurements, convert, counter_key, is_current, load, row_key
from gemmrepro.operands import shape_of

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
NOT_TESTABLE, NOT_MEASURED = "not testable here", "not measured"
VERDICTS = (REPRODUCED, PARTLY, NOT, NOT_TESTABLE, NOT_MEASURED)

SNAKEMAKE = "envs/run snakemake --use-singularity --cores 1"
COMMAND = f"{SNAKEMAKE} --force results/verdicts.json"

LOADS_COUNTER = "smsp__sass_inst_executed_op_global_ld.sum"
"""Global load instructions executed, a warp counted once."""

WARP = 32

_PUBLISHED_KEYS = ("system", "metric", "value", "unit", "hardware", "n", "dtype")


@dataclass(frozen=True)
class Value:
    """A measured number with its 95% interval (equal to the value where the source gives none)."""

    label: str
    value: float
    ci_low: float
    ci_high: float
    unit: str
    sources: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "value": self.value,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "unit": self.unit,
            "from": list(self.sources),
        }

    def text(self) -> str:
        """``0.33 [0.32, 0.34] TFLOP/s``; the interval is left out where there is none."""
        unit = "" if self.unit in ("ratio", "") else f" {self.unit}"
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
    """What a family's claims are judged on."""

    measured: Measurements
    gates: Mapping[str, Mapping[str, Any]]
    build_dir: Path
    experiments: Mapping[str, experiment_rows.Results] = field(default_factory=dict)
    ceilings: Measurements | None = None

    def toolkits(self, preferred: Sequence[str]) -> list[str]:
        """`preferred`, cut to begin with the first toolkit that has any current row of the family."""
        current = self.measured.summary[is_current(self.measured.summary)]
        have = set(current["toolkit"])
        return sorted(preferred, key=lambda toolkit: (toolkit not in have, preferred.index(toolkit)))

    def check_gate(self, kernel: str) -> None:
        """Raises NotMeasured for a kernel that failed its gate."""
        gate = self.gates.get(kernel)
        if gate is not None and gate.get("passed") is False:
            raise NotMeasured(f"{kernel} failed its gate, so its rows count for nothing")

    def _pick(self, table: pd.DataFrame, what: str) -> pd.Series:
        if table.empty:
            raise NotMeasured(f"there is no row of {what}")
        current = table[is_current(table)]
        if current.empty:
            keys = ", ".join(sorted({key for key in table["build_key"] if key}))
            raise NotMeasured(
                f"the only row of {what} is stale: it was taken from another build of the kernel (build key {keys})"
            )
        return current.iloc[-1]

    def row(self, kernel: str, n: int, cache: str, toolkit: str) -> pd.Series:
        """The summary row at size `n`: of a cube, of a matrix of `n` rows and columns to copy. Raises NotMeasured."""
        rows = self.measured.summary
        if rows.empty:
            raise NotMeasured(f"the family {self.measured.family} has no measurements")
        self.check_gate(kernel)
        mask = (rows["kernel"] == kernel) & (rows["toolkit"] == toolkit) & (rows["cache"] == cache)
        shape = shape_of(registry.kernel(kernel).op, n)
        for axis in ("m", "n", "k"):
            mask &= (rows[axis] == getattr(shape, axis)).fillna(False).astype(bool)
        return self._pick(rows[mask], f"{kernel} at {n}, {cache}, built by {toolkit}")

    def counter(self, kernel: str, n: int, metric: str, toolkit: str, unit: str) -> Value:
        """A hardware counter in `unit`. Raises NotMeasured."""
        rows = self.measured.counters
        if rows.empty:
            raise NotMeasured("no hardware counters were read (the profiler could not be used)")
        self.check_gate(kernel)
        mask = (rows["kernel"] == kernel) & (rows["toolkit"] == toolkit) & (rows["metric"] == metric)
        for axis in ("m", "n", "k"):
            mask &= (rows[axis] == n).fillna(False).astype(bool)
        row = self._pick(rows[mask], f"counter {metric} for {kernel} at {n}, built by {toolkit}")
        value = convert(row["value"], row["unit"], unit)
        if value is None or pd.isna(value):
            raise NotMeasured(f"counter {metric} of {kernel} is in '{row['unit']}', which is not a multiple of {unit}")
        return Value(f"{kernel}, {n}, {toolkit}", value, value, value, unit, ("counters:" + counter_key(row),))

    def build(self, kernel: str, toolkit: str) -> Mapping[str, Any] | None:
        """The build record, or None."""
        path = self.build_dir / toolkit / f"{kernel}.json"
        return read_json(path, "the build record", "build it again") if path.is_file() else None


_RATE = {"tflops": "TFLOP/s", "gbps": "GB/s"}
_SCALE = {("TFLOP/s", "GFLOP/s"): 1e3, ("GFLOP/s", "TFLOP/s"): 1e-3, ("GB/s", "TB/s"): 1e-3, ("TB/s", "GB/s"): 1e3}


def _scale(unit: str, to: str) -> float:
    if unit == to:
        return 1.0
    try:
        return _SCALE[unit, to]
    except KeyError:
        raise UserError(f"claims.yaml: a value in {unit} cannot stand beside a published value in {to}.") from None


def _need(row: pd.Series, *columns: str) -> None:
    empty = [column for column in columns if pd.isna(row[column])]
    if empty:
        raise NotMeasured(f"the row {row_key(row)} has no {', '.join(empty)}")


def rate(row: pd.Series, metric: str, unit: str, label: str) -> Value:
    """Throughput of a summary row; its interval follows from that of the median time."""
    _need(row, metric, "median_us", "ci_low_us", "ci_high_us")
    value = row[metric] * _scale(_RATE[metric], unit)
    work = value * row["median_us"]
    return Value(label, value, work / row["ci_high_us"], work / row["ci_low_us"], unit, (row_key(row),))


def duration(row: pd.Series, unit: str, label: str) -> Value:
    """Median time of a launch, in ``s``, ``ms`` or ``us``."""
    _need(row, "median_us", "ci_low_us", "ci_high_us")
    scale = {"s": 1e-6, "ms": 1e-3, "us": 1.0}[unit]
    times = (scale * row[column] for column in ("median_us", "ci_low_us", "ci_high_us"))
    return Value(label, *times, unit, (row_key(row),))


def baseline_rate(row: pd.Series, unit: str, label: str) -> Value:
    """Throughput of the baseline beside a summary row, which keeps no interval of it."""
    _need(row, "tflops", "median_us", "baseline_median_us")
    value = row["tflops"] * row["median_us"] / row["baseline_median_us"] * _scale("TFLOP/s", unit)
    return Value(f"baseline of {label}", value, value, value, unit, (row_key(row),))


def baseline_ratio(row: pd.Series, label: str) -> Value:
    """Time of the baseline over time of the kernel, from their paired samples."""
    _need(row, "ratio", "ratio_ci_low", "ratio_ci_high")
    return Value(label, row["ratio"], row["ratio_ci_low"], row["ratio_ci_high"], "ratio", (row_key(row),))


def ceiling_share(row: pd.Series, ceilings: Measurements | None, ceiling_id: str, label: str) -> Value:
    """Throughput of a summary row over a measured ceiling; the interval is the row's own. Raises NotMeasured."""
    ceiling = physical.measured_ceiling(ceilings, ceiling_id) if ceilings is not None else None
    if ceiling is None:
        raise NotMeasured(f"the ceiling {ceiling_id} was not measured")
    made = rate(row, "tflops", "TFLOP/s", label)
    value, low, high = (each / ceiling.value for each in (made.value, made.ci_low, made.ci_high))
    label = f"{label}, of {format_number(ceiling.value)} {ceiling.unit}"
    return Value(label, value, low, high, "ratio", (*made.sources, ceiling.key))


def speedup(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Median time of `over` divided by that of `row`; the interval takes the far ends of both, so it is a wide one."""
    for each in (row, over):
        _need(each, "median_us", "ci_low_us", "ci_high_us")
    return Value(
        label,
        over["median_us"] / row["median_us"],
        over["ci_low_us"] / row["ci_high_us"],
        over["ci_high_us"] / row["ci_low_us"],
        "ratio",
        (row_key(row), row_key(over)),
    )


def speedup_through_baseline(row: pd.Series, over: pd.Series, label: str) -> Value:
    """Ratio of `row` divided by that of `over`, to one and the same baseline; a wide interval, as in `speedup`.

    Each was timed in turn with the baseline, so a clock that changes between the two cancels, as it does not in times.
    """
    for each in (row, over):
        _need(each, "ratio", "ratio_ci_low", "ratio_ci_high")
    if row["baseline"] != over["baseline"]:
        raise NotMeasured(f"{row_key(row)} and {row_key(over)} were timed beside different baselines")
    return Value(
        f"{label}, through the baseline",
        row["ratio"] / over["ratio"],
        row["ratio_ci_low"] / over["ratio_ci_high"],
        row["ratio_ci_high"] / over["ratio_ci_low"],
        "ratio",
        (row_key(row), row_key(over)),
    )


_OPCODE = re.compile(r"\b(LDG|FFMA)((?:\.[A-Z0-9_]+)*)\b")


def loads_per_k(hot_loop: str) -> float | None:
    """Global load instructions an output, divided by K, read off a main loop's machine code.

    Every output takes K multiply-adds, so loads an output = K x (LDG in the loop) / (FFMA in the loop), whatever
    the loop is unrolled by. None where the loop lacks either of them.
    """
    count = {"LDG": 0, "FFMA": 0}
    for opcode, _ in _OPCODE.findall(hot_loop):
        count[opcode] += 1
    return count["LDG"] / count["FFMA"] if all(count.values()) else None


def _global_loads(evidence: Evidence, kernel: str, n: int, toolkit: str) -> Value:
    """Global load instructions an output, divided by K (= n).

    From the profiler's count where it was read, else from the machine code of the main loop.
    """
    label = f"{kernel}, {n}, {toolkit}"
    try:
        counted = evidence.counter(kernel, n, LOADS_COUNTER, toolkit, "inst")
    except NotMeasured as error:
        record = evidence.build(kernel, toolkit)
        if record is None:
            raise NotMeasured(f"{error}, and there is no build record of {kernel} by {toolkit}") from None
        archs = record.get("archs") or {}
        arch = evidence.measured.arch if evidence.measured.arch in archs else next(iter(sorted(archs)), None)
        found = loads_per_k((archs.get(arch) or {}).get("hot_loop") or "")
        if found is None:
            raise NotMeasured(
                f"{error}, and the main loop in the machine code of {kernel} ({arch}) does not show both "
                "its global loads and its multiply-adds"
            ) from None
        source = (f"results/build/{toolkit}/{kernel}.json#archs.{arch}.hot_loop",)
        return Value(f"{label}, machine code for {arch}", found, found, found, "K", source)
    value = counted.value * WARP / (n * n) / n
    return Value(f"{label}, counted", value, value, value, "K", counted.sources)


def _opcodes(evidence: Evidence, compute: Mapping[str, Any], toolkit: str) -> list[Value]:
    """How many instructions of a pattern stand in the machine code, a value for each target. Raises NotMeasured."""
    kernel = compute["kernel"]
    evidence.check_gate(kernel)
    record = evidence.build(kernel, toolkit)
    archs = (record or {}).get("archs") or {}
    if not archs:
        raise NotMeasured(f"there is no build record of {kernel} by {toolkit}")
    values = []
    for arch in sorted(archs):
        opcodes = archs[arch].get("instructions") or {}
        count = float(sum(number for opcode, number in opcodes.items() if re.fullmatch(compute["pattern"], opcode)))
        source = (f"results/build/{toolkit}/{kernel}.json#archs.{arch}.instructions",)
        values.append(Value(f"{kernel}, {toolkit}, {arch}", count, count, count, "instructions", source))
    return values


def judge_opcodes(found: Mapping[str, Sequence[Value]], compute: Mapping[str, Any]) -> tuple[str, str]:
    """Verdict and reason for a statement about machine code, from the counts of every toolkit's builds."""
    least, most = compute.get("least", 1), compute.get("most")
    every = [value for values in found.values() for value in values]
    wrong = [v for v in every if v.value < least or (most is not None and v.value > most)]
    asked = f"at least {least}" if most is None else "none" if not most else f"{least} to {most}"
    if wrong:
        named = ", ".join(f"{v.value:g} ({v.label.split(', ', 1)[1]})" for v in wrong[:4])
        return NOT, f"{asked} of {compute['pattern']} should stand in every build; found {named}"
    counts = sorted({int(value.value) for value in every})
    told = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if most == 0:
        return REPRODUCED, f"none of {compute['pattern']} stands in any of {len(every)} builds, as it should be"
    builds = f"each of {len(every)} builds" if len(every) > 1 else f"the build for {every[0].label.split(', ')[-1]}"
    return REPRODUCED, f"{told} of {compute['pattern']} stand in {builds}, where {asked} should"


_UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s", "ratio": "ratio", "ceiling_share": "ratio", "time": "ms"}


def _shared_bytes(evidence: Evidence, kernel_id: str, n: int, toolkit: str) -> int:
    """Shared memory of a block, static and dynamic, in bytes. Raises NotMeasured."""
    record = evidence.build(kernel_id, toolkit)
    if record is None:
        raise NotMeasured(f"there is no build record of {kernel_id} by {toolkit}")
    kernel = registry.kernel(kernel_id)
    static = max((arch["shared_bytes"] for arch in record["archs"].values()), default=0)
    return static + kernel.launch(shape_of(kernel.op, n)).shared_bytes


def _measure(claim: Claim, evidence: Evidence, toolkit: str) -> list[Value]:
    """The measured counterparts of a claim's published values, by one toolkit. Raises NotMeasured."""
    compute = claim.compute
    if compute["metric"] == "opcodes":
        return _opcodes(evidence, compute, toolkit)
    n = compute["n"]
    unit = claim.published[0]["unit"] if claim.published else _UNITS[compute["metric"]]

    def one(kernel: str, metric: str) -> Value:
        if metric == "counter":
            return evidence.counter(kernel, n, compute["counter"], toolkit, unit)
        row = evidence.row(kernel, n, claim.cache, toolkit)
        label = f"{kernel}, {n}, {claim.cache}, {toolkit}"
        if metric == "time":
            return duration(row, unit, label)
        if metric == "baseline_tflops":
            return baseline_rate(row, unit, label)
        if metric == "ceiling_share":
            return ceiling_share(row, evidence.ceilings, compute["ceiling"], label)
        return baseline_ratio(row, label) if metric == "ratio" else rate(row, metric, unit, label)

    match compute["metric"]:
        case "order":
            return [one(kernel, compute["of"]) for kernel in compute["kernels"]]
        case "shared_bytes":
            ids = (compute["kernel"], compute["over"])
            one_block, other = (_shared_bytes(evidence, kernel, n, toolkit) for kernel in ids)
            value = one_block / other
            label = f"{ids[0]} over {ids[1]}, {one_block} and {other} bytes, {toolkit}"
            sources = tuple(f"results/build/{toolkit}/{kernel}.json" for kernel in ids)
            return [Value(label, value, value, value, "ratio", sources)]
        case "speedup" | "faster":
            rows = [evidence.row(compute[key], n, claim.cache, toolkit) for key in ("kernel", "over")]
            label = f"{compute['kernel']} over {compute['over']}, {n}, {claim.cache}, {toolkit}"
            if "through" in compute:
                return [speedup_through_baseline(rows[0], rows[1], label)]
            return [speedup(rows[0], rows[1], label)]
        case "global_loads":
            loads = _global_loads(evidence, compute["kernel"], n, toolkit)
            if "over" not in compute:
                return [loads]
            over = _global_loads(evidence, compute["over"], n, toolkit)
            value = loads.value / over.value
            label = f"{compute['kernel']} over {compute['over']}, {n}, {toolkit}"
            if "machine code" in loads.label + over.label:
                label += ", machine code"
            return [Value(label, value, value, value, "ratio", loads.sources + over.sources)]
        case metric:
            return [one(compute["kernel"], metric)]


# Words of a product's name that do not make it another GPU.
_FORM = {
    "NVIDIA",
    "RTX",
    "GEFORCE",
    "QUADRO",
    "TESLA",
    "SXM",
    "SXM2",
    "SXM3",
    "SXM4",
    "SXM5",
    "SXM6",
    "PCIE",
    "HBM2",
    "HBM3",
}


def same_gpu(published: str, present: str | None) -> bool:
    """Whether two names mean the same GPU, as ``NVIDIA A100`` and ``NVIDIA A100-SXM4-80GB`` do."""

    def words(name: str) -> set[str]:
        parts = re.split(r"[\s/-]+", name.upper())
        return {part for part in parts if part and part not in _FORM and not re.fullmatch(r"\d+GB", part)}

    return bool(present) and words(published) == words(present)


def difference(measured: float, published: float) -> str:
    change = measured / published - 1
    if abs(change) < 0.005:
        return "within half a percent of it"
    if measured / published >= 2 or measured / published <= 0.5:
        factor = format_number(max(measured / published, published / measured), 2)
        return f"{factor} times {'higher' if change > 0 else 'lower'}"
    return f"{abs(100 * change):.0f}% {'higher' if change > 0 else 'lower'}"


def judge_value(value: Value, published: float, tolerance: float, partly: Mapping[str, float]) -> tuple[str, str]:
    """Verdict and reason for one value against its published counterpart."""
    low, high = sorted((published * (1 - tolerance), published * (1 + tolerance)))
    band = f"±{100 * tolerance:g}%"
    overlaps = value.ci_low <= high and value.ci_high >= low
    wide = value.ci_high - value.ci_low > high - low
    if overlaps and not wide:
        inside = low <= value.value <= high
        return (
            REPRODUCED,
            f"inside the tolerance of {band}" if inside else f"its interval reaches the tolerance of {band}",
        )
    if overlaps:
        reason = f"its interval is wider than the tolerance of {band}, so it decides nothing about the size"
    else:
        reason = f"outside the tolerance of {band}"
    if not partly:
        return NOT, reason
    held, missed = [], []
    if "same_side_of" in partly:
        pivot = partly["same_side_of"]
        same = value.ci_low > pivot if published > pivot else value.ci_high < pivot
        side = "above" if published > pivot else "below"
        (held if same else missed).append(f"{side} {pivot:g} as published" if same else f"not {side} {pivot:g}")
    if "within_factor" in partly:
        factor = partly["within_factor"]
        near = published / factor <= value.value <= published * factor
        (held if near else missed).append(
            f"within a factor of {factor:g}" if near else f"off by more than {factor:g} times"
        )
    if missed:
        return NOT, f"{reason}, and {' and '.join(missed)}"
    return PARTLY, f"{reason}, but {' and '.join(held)}"


def judge_faster(value: Value) -> tuple[str, str]:
    """Verdict and reason for the statement that a quotient of speeds is above 1."""
    if value.ci_low > 1:
        return REPRODUCED, "the whole interval is above 1"
    if value.ci_high < 1:
        return NOT, "it is the slower one"
    return NOT, "the interval holds 1, so no difference shows"


def judge_order(values: Sequence[Value], published: Sequence[float]) -> tuple[str, str]:
    """Verdict and reason for an order: neighbours in the published order, intervals apart."""
    wrong = []
    for (a, published_a), (b, published_b) in pairwise(zip(values, published, strict=True)):
        low, high = (a, b) if published_a < published_b else (b, a)
        if not low.ci_high < high.ci_low:
            wrong.append(f"{_name(a)} and {_name(b)}")
    pairs = len(values) - 1
    if not wrong:
        return REPRODUCED, (
            "both are in the published order with intervals apart"
            if pairs == 1
            else f"all {pairs} neighbouring pairs are in the published order with intervals apart"
        )
    held = pairs - len(wrong)
    reason = f"{held} of {pairs} neighbouring pairs are in the published order; not so {', '.join(wrong)}"
    return (PARTLY if held > pairs / 2 else NOT), reason


def _name(value: Value) -> str:
    return value.label.split(",", 1)[0]


def _numeric_note(claim: Claim, evidence: Evidence, toolkit: str) -> str:
    """A sentence where a kernel behind a claim has no passed numerical gate for this binary."""
    open_gates = []
    for kernel in claim.kernels:
        numeric = ((evidence.gates.get(kernel) or {}).get("toolkits", {}).get(toolkit) or {}).get("numeric") or {}
        if numeric.get("status") not in ("passed", None):
            open_gates.append(f"{kernel} ({numeric['status']})")
    return f" The numerical gate has not passed for {', '.join(open_gates)}." if open_gates else ""


def _tuned_note(claim: Claim, evidence: Evidence, toolkit: str) -> str:
    """A sentence on what the claim's kernel reaches with constants found on this GPU, where that was measured."""
    if claim.compute["metric"] not in ("ratio", "tflops") or claim.cache != "warm":
        return ""
    kernel = registry.kernel(claim.compute["kernel"])
    said = ""
    for twin in rungs.twins(kernel):
        if not rungs.is_tuned(twin) or twin.dtype_in != kernel.dtype_in:
            continue
        tuned = replace(claim, compute={**claim.compute, "kernel": twin.id})
        try:
            (value,) = _measure(tuned, evidence, toolkit)
        except NotMeasured:
            continue
        said += f" Tuned for this GPU ({twin.id}), which the verdict leaves out: {value.text()}."
    return said


def judge_experiment(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """The verdict on a claim that rests on an experiment, as its entry in verdicts.json."""
    compute = claim.compute
    results = evidence.experiments.get(compute["experiment"])
    reason = f"the experiment {compute['experiment']} was not run"
    for toolkit in claim.toolkits if results is not None else ():
        try:
            for kernel in claim.kernels:
                evidence.check_gate(kernel)
            found, exact = experiment_claims.values(results, compute, claim.family, toolkit, claim.published)
        except (experiment_claims.Missing, NotMeasured) as error:
            reason = str(error)
            continue
        if not found:
            reason = f"at all {exact} points neither errs at all"
            continue
        by = toolkit if results.toolkit else None  # libraries have rows by no toolkit
        if claim.tolerance is not None:
            return _judge_figure(claim, results, found[0], by)
        good = sum(experiment_claims.holds(each, compute) for each in found)
        verdict = REPRODUCED if good == len(found) else PARTLY if good > len(found) / 2 else NOT
        if claim.transfer["kind"] == "none" and not same_gpu(str(claim.published[0]["hardware"]), results.gpu):
            verdict = NOT_TESTABLE
        # The point that speaks loudest against the claim stands in the table.
        worst = (max if "most" in compute and not {"above", "least"} & set(compute) else min)(
            found, key=lambda each: each.value
        )
        unit = "ratio" if "over" in compute else results.experiment.column(compute["value"]).unit
        label = ", ".join(filter(None, (worst.point, by)))
        value = Value(label, worst.value, worst.low, worst.high, unit, worst.rows).as_json()
        # JSON has no infinity, which a quotient by zero is.
        value = {key: None if cell in (math.inf, -math.inf) else cell for key, cell in value.items()}
        measured = [{**value, "judged": True, "experiment": compute["experiment"]}]
        said = experiment_claims.tell(found, exact, compute)
        explanation = f"On {results.machine or 'this machine'} {said}.{_numeric_note(claim, evidence, toolkit)}"
        return _entry(claim, verdict, explanation, measured, by)
    return _entry(claim, NOT_MEASURED, reason[0].upper() + reason[1:] + ".", [], None)


def _judge_figure(
    claim: Claim, results: experiment_rows.Results, found: experiment_claims.Found, by: str | None
) -> dict[str, Any]:
    """The verdict on an experiment's value that is held against a published figure."""
    compute, first = claim.compute, claim.published[0]
    unit = "" if "over" in compute else results.experiment.column(compute["value"]).unit
    label = ", ".join(filter(None, (found.point, by)))
    value = Value(label, found.value, found.low, found.high, unit or "ratio", found.rows)
    here = results.machine or "this machine"
    published_unit = "" if len(claim.published) > 1 or first["unit"] == "ratio" else f" {first['unit']}"
    said = f"Published {claim.figure}{published_unit} on {first['hardware']}; measured {value.text()} on {here}"
    said += f" ({label})" if label else ""
    if claim.transfer["kind"] == "none" and not same_gpu(str(first["hardware"]), results.machine):
        verdict, explanation = NOT_TESTABLE, f"{said}. Only {first['hardware']} can confirm the figure."
    else:
        verdict, reason = judge_value(value, claim.value, claim.tolerance or 0.0, claim.partly)
        explanation = f"{said}, {difference(value.value, claim.value)}: {reason}."
    entry = {**value.as_json(), "judged": True, "experiment": compute["experiment"]}
    return _entry(claim, verdict, explanation, [entry], by)


def judge_nothing(claim: Claim) -> dict[str, Any]:
    """The entry of a claim that no run here can test."""
    return _entry(claim, NOT_TESTABLE, claim.transfer["why"], [], None)


def judge_lines(claim: Claim) -> dict[str, Any]:
    """The verdict on a claim about lengths of source files, as its entry in verdicts.json. Needs no measurement."""
    compute = claim.compute
    paths = [registry.kernel(compute[key]).source_path for key in ("kernel", "over")]
    one, other = (lines.of_file(path) for path in paths)
    value, least, most = one / other, compute["least"], compute["most"]
    said = f"{paths[0].name} has {one} lines of code, {paths[1].name} {other}"
    asked = f"{format_number(least)} to {format_number(most)} times as many"
    if least <= value <= most:
        verdict, reason = REPRODUCED, f"{asked}, as stated"
    elif (value < 1) == (most <= 1):
        verdict, reason = PARTLY, f"not {asked}, but {'fewer' if value < 1 else 'more'} all the same"
    else:
        verdict, reason = NOT, f"not {asked}"
    sources = tuple(path.relative_to(registry.KERNELS_DIR.parent).as_posix() for path in paths)
    measured = Value(f"{compute['kernel']} over {compute['over']}", value, value, value, "ratio", sources)
    entry = {**measured.as_json(), "judged": True, "static": True}
    return _entry(claim, verdict, f"{said}: {format_number(value)} times as many, {reason}.", [entry], None)


def judge(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """The verdict on one claim, as its entry in verdicts.json."""
    if claim.compute["metric"] == "experiment":
        return judge_experiment(claim, evidence)
    if claim.compute["metric"] == "lines":
        return judge_lines(claim)
    if claim.compute["metric"] == "none":
        return judge_nothing(claim)
    toolkits = evidence.toolkits(claim.toolkits)
    found: dict[str, list[Value]] = {}
    reasons: dict[str, str] = {}
    for toolkit in toolkits:
        try:
            found[toolkit] = _measure(claim, evidence, toolkit)
        except NotMeasured as error:
            reasons[toolkit] = str(error)
    judged_on = toolkits[0]
    if "counter" in (claim.compute["metric"], claim.compute.get("of")):
        # Counters may have been read for one toolkit only.
        judged_on = judged_on if judged_on in found else next(iter(found), judged_on)
    if claim.compute["metric"] == "opcodes":
        # Machine code needs no measurement: whatever toolkit built the kernel counts.
        judged_on = judged_on if judged_on in found else next(iter(found), judged_on)
    values = found.get(judged_on)
    gpu = evidence.measured.gpu
    hardware = str(claim.published[0]["hardware"]) if claim.published else ""
    home = bool(hardware) and same_gpu(hardware, gpu)
    kind = claim.transfer["kind"]

    metric = claim.compute["metric"]
    published = [row["value"] for row in claim.published]
    if metric != "order" and published:
        published = [claim.value]
    unit = "ratio" if len(claim.published) > 1 else claim.published[0]["unit"] if claim.published else ""
    first = claim.figure + ("" if unit == "ratio" else f" {unit}")
    here = gpu or "this machine"
    if values is None:
        said = ""
    elif claim.compute["metric"] == "order":
        said = f"Measured on {here}: " + ", ".join(f"{_name(value)} {value.text()}" for value in values) + "."
    elif metric == "faster":
        compared = f"{claim.compute['kernel']} is {values[0].text()} times as fast as {claim.compute['over']}"
        said = f"Measured on {here}: {compared} ({values[0].label.split(', ', 1)[1]})"
    elif not published:
        said = f"Measured {values[0].text()} on {here} ({values[0].label.split(', ', 1)[1]})"
    else:
        said = f"Published {first} on {hardware}; measured {values[0].text()} on {here}"
        said += f" ({values[0].label.split(', ', 1)[1]}), {difference(values[0].value, published[0])}"

    others = [toolkit for toolkit in toolkits if toolkit in found and toolkit != judged_on]
    beside = ""
    if values is not None and len(values) == 1:
        beside = "".join(f" With {toolkit}: {found[toolkit][0].text()}." for toolkit in others)
    if claim.compute["metric"] == "opcodes" and values is not None:
        verdict, reason = judge_opcodes(found, claim.compute)
        explanation = f"{reason[0].upper()}{reason[1:]}."
    elif kind == "none" and not home:
        verdict = NOT_TESTABLE
        explanation = f"{said}.{beside}{_tuned_note(claim, evidence, judged_on)} " if values else ""
        explanation += f"Only {hardware} can confirm the figure." if published else claim.transfer["why"]
    elif values is None:
        verdict = NOT_MEASURED
        explanation = reasons[judged_on][0].upper() + reasons[judged_on][1:] + "."
    else:
        if claim.compute["metric"] == "order":
            verdict, reason = judge_order(values, published)
            explanation = f"{said} {reason[0].upper()}{reason[1:]}."
        else:
            if metric == "faster":
                verdict, reason = judge_faster(values[0])
            else:
                verdict, reason = judge_value(values[0], published[0], claim.tolerance or 0.0, claim.partly)
            explanation = f"{said}: {reason}."
        explanation += beside + _tuned_note(claim, evidence, judged_on) + _numeric_note(claim, evidence, judged_on)

    if claim.compute["metric"] == "opcodes" and values:
        # One count stands for all targets: that of the GPU at hand, or else the smallest.
        here_first = [value for value in values if value.label.endswith(str(evidence.measured.arch))]
        values = here_first[:1] or [min(values, key=lambda value: value.value)]
        others = []
    measured = [{**value.as_json(), "judged": True} for value in values or ()]
    measured += [{**value.as_json(), "judged": False} for toolkit in others for value in found[toolkit]]
    return _entry(claim, verdict, explanation, measured, judged_on if values is not None else None)


def _entry(
    claim: Claim, verdict: str, explanation: str, measured: list[dict[str, Any]], judged_on: str | None
) -> dict[str, Any]:
    """A claim's entry in verdicts.json."""
    return {
        "id": claim.id,
        "family": claim.family,
        "article": claim.article,
        "where": claim.where,
        "statement": claim.statement,
        "kernels": list(claim.kernels),
        "published": [{key: row[key] for key in _PUBLISHED_KEYS} for row in claim.published],
        "transfer": dict(claim.transfer),
        "tolerance": claim.tolerance,
        "partly": dict(claim.partly),
        "judged_on": judged_on,
        "verdict": verdict,
        "measured": measured,
        "explanation": explanation,
        "command": COMMAND,
    }


def load_gates(gates_dir: Path | str, kernel_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The gate verdicts that are there, by kernel id."""
    gates = {}
    for kernel_id in kernel_ids:
        path = Path(gates_dir) / f"{kernel_id}.json"
        if path.is_file():
            gates[kernel_id] = read_json(path, "the gate verdict", "run the gate again")
    return gates


def judge_all(
    measure_dir: Path,
    gates_dir: Path,
    build_dir: Path,
    families: tuple[str, ...] | None = None,
    load_claims: Callable[[tuple[str, ...] | None], list[Claim]] = claims_module.load,
    experiments_dir: Path | None = None,
) -> dict[str, Any]:
    """Every claim's verdict, and what they rest on."""
    all_claims = load_claims(families)
    evidence: dict[str, Evidence] = {}
    ceilings = load(measure_dir, physical.FAMILY)
    for family in dict.fromkeys((*(families or ()), *(claim.family for claim in all_claims))):
        results = experiment_rows.load(experiments_dir, family)
        ids = {kernel.id for kernel in registry.kernels(family)}
        ids |= {kernel for each in results.values() for kernel in each.experiment.kernels}
        gates = load_gates(gates_dir, sorted(ids))
        evidence[family] = Evidence(load(measure_dir, family), gates, Path(build_dir), results, ceilings)
    entries = [judge(claim, evidence[claim.family]) for claim in all_claims]
    sources = {each.measured.source for each in evidence.values()} - {"none"}
    gpus = {each.measured.gpu for each in evidence.values() if each.measured.gpu}
    return {
        "claims": entries,
        "gpu": ", ".join(sorted(gpus)) or None,
        "source": "none" if not sources else sources.pop() if len(sources) == 1 else "mixed",
        "counts": {verdict: sum(entry["verdict"] == verdict for entry in entries) for verdict in VERDICTS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge every claim from the measurement rows.")
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows a family")
    parser.add_argument("--gates", type=Path, required=True, help="folder with one gate verdict a kernel")
    parser.add_argument("--build", type=Path, required=True, help="folder with the build records")
    parser.add_argument("--families", help="only these, separated by commas; default: all with a claims.yaml")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments a family")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    families = tuple(arguments.families.split(",")) if arguments.families else None
    folders = (arguments.measure, arguments.gates, arguments.build)
    verdicts = judge_all(*folders, families, experiments_dir=arguments.experiments)
    write_json(arguments.out, verdicts)
    width = max((len(entry["id"]) for entry in verdicts["claims"]), default=0)
    for entry in verdicts["claims"]:
        print(f"{entry['id']:<{width}}  {entry['verdict']}")
    return 0


if __name__ == "__main__":
    run_stage(main)
