"""Metrics: how a quantity of a claim is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import format_number
from gemmrepro.judge.ceilings import measured_ceiling
from gemmrepro.judge.claims import Claim
from gemmrepro.judge.evidence import _RATE, Evidence, NotMeasured, Value, _need, _scale
from gemmrepro.measure.rows import Measurements, row_key
from gemmrepro.operations import shape_of

LOADS_COUNTER = "smsp__sass_inst_executed_op_global_ld.sum"
"""Global load instructions executed, a warp counted once."""

WARP = 32


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
    ceiling = measured_ceiling(ceilings, ceiling_id) if ceilings is not None else None
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
