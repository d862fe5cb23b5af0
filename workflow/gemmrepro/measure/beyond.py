"""Which points are beyond a GPU: by the memory that is free, and by the time that they would take in FP64."""

from __future__ import annotations

from dataclasses import dataclass

from gemmrepro.core.architectures import fp64_per_clock
from gemmrepro.errors import too_large
from gemmrepro.gpu.device import Gpu
from gemmrepro.measure.plan import needed_bytes, own_bytes
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import Kernel

PRODUCTS = 4
"""Products in float64 that a problem's results are judged by: C* and its scale, before and after the timing."""

REFERENCE_SECONDS, LAUNCH_SECONDS, WATCHDOG_SECONDS = 30.0, 5.0, 2.0
"""The most that a problem's reference, a launch, and a launch on a GPU that also drives a display may take. Some ten
launches stand behind a row. A display's watchdog ends a launch after a few seconds."""

USUAL_MHZ = 1500
"""The clock of a GPU that does not say its own."""


@dataclass(frozen=True)
class Room:
    """A GPU and the bytes of its memory that are free."""

    gpu: Gpu
    free: int

    def beyond(self, kernel: Kernel, shape: Shape) -> str:
        """Why `shape` is beyond the GPU for `kernel`, or ""."""
        problem = kernel.problem
        needed = needed_bytes(problem, shape, self.gpu.l2_bytes) + own_bytes(kernel, shape)
        return too_large(needed, self.free) or self._too_slow(problem, shape)

    def _too_slow(self, problem: Problem, shape: Shape) -> str:
        seconds = self.fp64_seconds(problem, shape)
        watched = self.gpu.watched
        most = WATCHDOG_SECONDS if watched else LAUNCH_SECONDS
        if problem.dtype_in == "fp64" and seconds > most:
            why = "the watchdog of this GPU's display ends it before" if watched else f"the limit is {most:g}"
            return f"a launch takes about {seconds:.1f} s in FP64 here; {why}"
        if PRODUCTS * seconds > REFERENCE_SECONDS:
            return (
                f"its reference takes about {PRODUCTS * seconds:.0f} s in FP64 here; the limit is {REFERENCE_SECONDS:g}"
            )
        return ""

    def fp64_seconds(self, problem: Problem, shape: Shape) -> float:
        """About how long a product in FP64 of this shape takes; 0 for an operation that has none."""
        if not problem.operation.matrix_product:
            return 0.0
        gpu = self.gpu
        clock = 1e6 * (gpu.clock_max_mhz or USUAL_MHZ)
        return shape.m * shape.n * shape.k / (gpu.sm_count * fp64_per_clock(gpu.compute_capability) * clock)
