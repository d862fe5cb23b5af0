"""The measured ceilings that no printed interval may exceed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gemmrepro import registry
from gemmrepro.judge.ceilings import CEILING_FAMILY, of_operation
from gemmrepro.measure.rows import Measurements
from gemmrepro.recordings.limits import bounds
from gemmrepro.registry import chips

ONE_RATE = ({"fp16", "bf16"},)
"""Types that a GPU multiplies at one rate, so the fastest loop of any bounds all."""


def highest(measured: Mapping[str, Measurements]) -> dict[str, float]:
    """TFLOP/s of the fastest loop of multiplications alone, by type; a type without one that bounds it is missing."""
    ceilings = measured.get(CEILING_FAMILY)
    if ceilings is None:
        return {}
    found: dict[str, float] = {}
    gpu = ceilings.run.get("gpu") or {}
    for dtype in sorted(set(ceilings.summary["dtype"]) - {""}):
        known = of_operation(ceilings, "ceiling_flops", dtype)
        if widest := [ceiling.value for ceiling in known if bounds(registry.kernel(ceiling.kernel), gpu)]:
            found[dtype] = widest[0]
    for types in ONE_RATE:
        if together := [found[dtype] for dtype in types if dtype in found]:
            found |= dict.fromkeys(types, max(together))
    if len({peak.value for name in ("fp16_acc32", "fp16_acc16") if (peak := chips.peak(gpu, name))}) > 1:
        found.pop("fp16", None)  # it was measured with fp32 sums, and fp16 sums are faster on this GPU
    return found


def ceiling_of(ceilings: Mapping[str, float] | None, dtype: str) -> float:
    """The ceiling of a type in TFLOP/s; infinite where none was measured."""
    return (ceilings or {}).get(dtype, math.inf)
