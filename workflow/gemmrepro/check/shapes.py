"""`Accepts` is consistent with the shapes that a kernel takes."""

from __future__ import annotations

from dataclasses import replace

from gemmrepro.check.findings import Findings
from gemmrepro.operations import Shape
from gemmrepro.registry import USUAL_SHAPES, Kernel


def check(kernel: Kernel, findings: Findings) -> None:
    usual = [shape for shape in USUAL_SHAPES if kernel.takes(shape)]
    findings.require(
        bool(usual), kernel.id, f"it takes none of {', '.join(map(str, USUAL_SHAPES))}; its launch is never looked at."
    )
    for shape in kernel.promises.gate_shapes:
        findings.require(kernel.takes(shape), kernel.id, f"it refuses {shape}, one of its own gate_shapes.")
    for shape in usual[:1]:
        for axis, step in kernel.accepts.multiple_of.items():
            odd: Shape = replace(shape, **{axis: getattr(shape, axis) + 1})
            findings.require(
                step > 1 and not kernel.takes(odd),
                kernel.id,
                f"{axis.upper()} must be a multiple of {step}, and yet it takes {odd}; leave multiples of 1 out.",
            )
    if kernel.timing.timed_to:
        timed = Shape.cube(kernel.timing.timed_to)
        findings.require(
            not kernel.problem.operation.matrix_product or kernel.takes(timed),
            kernel.id,
            f"it is timed to {timed}, which it refuses.",
        )
