"""Global load instructions per output, from the profiler or from the machine code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import AT_SIZE, TEXT, FigureMetric

LOADS_COUNTER = "smsp__sass_inst_executed_op_global_ld.sum"
"""Global load instructions executed, counted once per warp."""

WARP = 32
_OPCODE = re.compile(r"\b(LDG|FFMA)((?:\.[A-Z0-9_]+)*)\b")


@dataclass(frozen=True)
class GlobalLoads(FigureMetric):
    """Global load instructions per output: over K, or over those of another kernel."""

    @property
    def compute_schema(self) -> Mapping[str, Any]:
        return {"required": ["kernel", "n"], "properties": {"kernel": TEXT, "over": TEXT, **AT_SIZE}}

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        compute, n = claim.compute, claim.compute["n"]
        loads = _of_kernel(evidence, compute["kernel"], n, toolkit)
        if "over" not in compute:
            return (loads,)
        over = _of_kernel(evidence, compute["over"], n, toolkit)
        value = loads.value / over.value
        label = f"{compute['kernel']} over {compute['over']}, {n}, {toolkit}"
        if "machine code" in loads.label + over.label:
            label += ", machine code"
        return (Value(label, value, value, value, "ratio", loads.sources + over.sources),)


def loads_per_k(hot_loop: str) -> float | None:
    """Global load instructions per output, divided by K, counted in a main loop's machine code.

    Every output takes K multiply-adds, so loads per output = K x (LDG in the loop) / (FFMA in the loop), however
    far the loop is unrolled. None if the loop lacks either of them.
    """
    count = {"LDG": 0, "FFMA": 0}
    for opcode, _ in _OPCODE.findall(hot_loop):
        count[opcode] += 1
    return count["LDG"] / count["FFMA"] if all(count.values()) else None


def _of_kernel(evidence: Evidence, kernel: str, n: int, toolkit: str) -> Value:
    """Global load instructions per output, divided by K (= n).

    From the profiler's count where it was read, else from the machine code of the main loop. Raises NotMeasured.
    """
    try:
        counted = evidence.counter(kernel, n, LOADS_COUNTER, toolkit, "inst")
    except NotMeasured as uncounted:
        return _from_machine_code(evidence, kernel, n, toolkit, uncounted)
    value = counted.value * WARP / (n * n) / n
    return Value(f"{kernel}, {n}, {toolkit}, counted", value, value, value, "K", counted.sources)


def _from_machine_code(evidence: Evidence, kernel: str, n: int, toolkit: str, uncounted: NotMeasured) -> Value:
    record = evidence.build(kernel, toolkit)
    if record is None:
        raise NotMeasured(f"{uncounted}, and there is no build record of {kernel} by {toolkit}")
    archs = record.archs
    arch = evidence.measured.arch if evidence.measured.arch in archs else next(iter(sorted(archs)), None)
    loads = loads_per_k(archs[arch].hot_loop) if arch else None
    if loads is None:
        raise NotMeasured(
            f"{uncounted}, and the main loop in the machine code of {kernel} ({arch}) does not show both "
            "its global loads and its multiply-adds"
        )
    source = (f"results/build/{toolkit}/{kernel}.json#archs.{arch}.hot_loop",)
    return Value(f"{kernel}, {n}, {toolkit}, machine code for {arch}", loads, loads, loads, "K", source)
