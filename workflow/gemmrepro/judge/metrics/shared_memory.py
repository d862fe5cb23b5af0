"""Shared memory of a block, from the build record and the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro import registry
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import AT_SIZE, TEXT, FigureMetric
from gemmrepro.operations import shape_of


@dataclass(frozen=True)
class SharedBytes(FigureMetric):
    """Shared memory of a block of `kernel` over that of a block of `over`."""

    way = "count"

    @property
    def compute_schema(self) -> Mapping[str, Any]:
        return {"required": ["kernel", "over", "n"], "properties": {"kernel": TEXT, "over": TEXT, **AT_SIZE}}

    def values(self, claim: Claim, evidence: Evidence, toolkit: str) -> tuple[Value, ...]:
        ids = (claim.compute["kernel"], claim.compute["over"])
        block, over = (shared_bytes(evidence, kernel, claim.compute["n"], toolkit) for kernel in ids)
        value = block / over
        label = f"{ids[0]} over {ids[1]}, {block} and {over} bytes, {toolkit}"
        sources = tuple(f"results/build/{toolkit}/{kernel}.json" for kernel in ids)
        return (Value(label, value, value, value, "ratio", sources),)


def shared_bytes(evidence: Evidence, kernel_id: str, n: int, toolkit: str) -> int:
    """Shared memory of a block, static and dynamic, in bytes. Raises NotMeasured."""
    record = evidence.build(kernel_id, toolkit)
    if record is None or not record.archs:
        raise NotMeasured(f"there is no build record of {kernel_id} by {toolkit}")
    kernel = registry.kernel(kernel_id)
    static = max((code.shared_bytes for code in record.archs.values()), default=0)
    return static + kernel.launch(shape_of(kernel.compute.op, n)).shared_bytes
