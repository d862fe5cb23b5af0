"""The points of a sweep; what is left out and why: by its gate, by the configuration, for lack of memory or time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmrepro import operations, timing
from gemmrepro.core.files import read_json
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import NEEDS, UserError, too_large
from gemmrepro.gpu.cublas import WORKSPACE_BYTES
from gemmrepro.gpu.device import Gpu
from gemmrepro.operations import Problem, Shape, shape_of
from gemmrepro.registry import Kernel, chips

PROTOCOL = 3
"""Increment it when the meaning of a sample changes: older journal entries then no longer count."""


@dataclass(frozen=True)
class Settings:
    """The configuration's sweep section as it concerns one family; `document` is the whole section.

    Attributes:
        interval: a round of a point ends when its 95% intervals are narrower than this, relative to their values.
        seconds_per_round: the most time that a round of a point takes.
        samples_per_round: the fewest and the most.
    """

    document: Mapping[str, Any]
    toolkits: tuple[str, ...]
    caches: tuple[str, ...]
    rounds: int
    interval: float
    seconds_per_round: float
    samples_per_round: tuple[int, int]
    sizes: tuple[int, ...]
    counters: tuple[int, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any], family: str) -> Settings:
        least, most = document["samples_per_round"]
        return cls(
            document=document,
            toolkits=one_of(document, "toolkit", family),
            caches=one_of(document, "cache", family),
            rounds=document["rounds"],
            interval=document["interval"],
            seconds_per_round=document["seconds_per_round"],
            samples_per_round=(least, most),
            sizes=sizes(document, family),
            counters=tuple((document.get("counters") or {}).get(family, ())),
        )

    def is_timed_at(self, kernel: Kernel, size: int) -> bool:
        return is_timed_at(self.document, kernel.family, kernel.id, size)

    @property
    def sampling(self) -> dict[str, Any]:
        """The settings that decide how a sample is taken, as the journal stores them."""
        names = ("interval", "seconds_per_round", "samples_per_round")
        return {**{name: self.document[name] for name in names}, "protocol": PROTOCOL}

    @property
    def plan(self) -> timing.Plan:
        """When a round of a point has enough samples."""
        return timing.Plan(self.interval, self.seconds_per_round, *self.samples_per_round)


@dataclass(frozen=True)
class Skipped:
    """A kernel, or a library, that is not measured, and why."""

    kernel: str
    toolkit: str
    reason: str


@dataclass(frozen=True)
class Point:
    """One row of the summary. `toolkit` is "library" for a baseline's own point."""

    kernel: str
    toolkit: str
    problem: Problem
    shape: Shape
    cache: str
    baseline: str | None

    @property
    def subject(self) -> tuple[str, str, Problem, Shape]:
        """The part that is checked once for all cache states and rounds."""
        return self.kernel, self.toolkit, self.problem, self.shape

    def __str__(self) -> str:
        return f"{self.kernel} {self.toolkit} {self.problem.dtype_in} {self.shape} {self.cache}"

    def entry(self, *parts: str) -> str:
        """The name of its journal entry for `parts`: a cache state and a round, or the check."""
        return ".".join((self.kernel, self.toolkit, self.problem.dtype_in, str(self.shape), *parts))


def not_timeable(kernel_id: str, toolkit: str, build_key: str, gates: Path) -> str | None:
    """Why this binary must not be timed, or None if it may be: only what passed its gate is ever timed.
    Raises UserError if the gate's verdict is missing or corrupt."""
    gate = read_json(
        Path(gates) / f"{kernel_id}.json", "the gate's verdict", f"run the gates stage for {kernel_id} before the sweep"
    )
    try:
        verdict = gate["toolkits"].get(toolkit)
        if not gate["passed"]:
            return "its gate failed"
        if verdict is None:
            return f"it was not gated for {toolkit}"
        numeric = verdict["numeric"]
        if numeric["status"] == "not run" and numeric.get("reason"):
            return str(numeric["reason"])
        if numeric["status"] != "passed":
            return f"its numerical gate says '{numeric['status']}'"
        if numeric["build_key"] != build_key:
            return f"its numerical gate judged build {numeric['build_key']}, and this is build {build_key}"
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"the gate's verdict of {kernel_id} lacks a field; run the gates stage again.") from None
    return None


def plan_points(
    kernels: Sequence[Kernel],
    sizes: Sequence[int],
    toolkits: Sequence[str],
    caches: Sequence[str],
    refuse: Callable[[Kernel, str], str | None],
    is_timed_at: Callable[[Kernel, int], bool] = lambda *_: True,
    beyond: Callable[[Kernel, Shape], str] = lambda *_: "",
) -> tuple[list[Point], list[Skipped]]:
    """Every point of a sweep, in the order of input sizes, and what is left out and why.
    `refuse`: why a binary must not be timed, or None; `is_timed_at`: whether the configuration wants a kernel at a
    size; `beyond`: why a shape is beyond the GPU, or "". Where all lack memory a smaller is timed."""
    points: list[Point] = []
    skipped: list[Skipped] = []
    used: dict[tuple[str, str, Shape], Problem] = {}  # a library has one row a type and shape, whatever the layout
    for kernel in kernels:
        for toolkit in (name for name in toolkits if name in kernel.platform.toolkits):
            reason = refuse(kernel, toolkit)
            if reason:
                skipped.append(Skipped(kernel.id, toolkit, reason))
                continue
            wanted = [size for size in sizes if is_timed_at(kernel, size)]
            instead = smaller(kernel, wanted, beyond)
            for shape in dict.fromkeys([*(shape_of(kernel.compute.op, size) for size in wanted), *instead]):
                try:
                    kernel.check(shape)
                except UserError as error:
                    skipped.append(Skipped(kernel.id, toolkit, str(error)))
                    continue
                if kernel.timing.timed_to and max(shape.m, shape.n, shape.k) > kernel.timing.timed_to:
                    reason = (
                        f"a launch on {shape}, or its check, takes seconds; it is timed up to {kernel.timing.timed_to}"
                    )
                    skipped.append(Skipped(kernel.id, toolkit, reason))
                    continue
                if reason := beyond(kernel, shape):
                    timed = "".join(f"; {other} is timed in its place" for other in instead)
                    skipped.append(Skipped(kernel.id, toolkit, f"{shape}: {reason}{timed}"))
                    continue
                points += [
                    Point(kernel.id, toolkit, kernel.problem, shape, cache, kernel.timing.baseline) for cache in caches
                ]
                if kernel.timing.baseline:
                    used.setdefault((kernel.timing.baseline, kernel.problem.dtype_in, shape), kernel.problem)
    for (name, _, shape), problem in used.items():
        points += [Point(name, LIBRARY, problem, shape, cache, name) for cache in caches]
    points.sort(key=lambda point: sum(operations.counts(point.problem, point.shape)[0]))
    return points, skipped


def smaller(kernel: Kernel, sizes: Sequence[int], beyond: Callable[[Kernel, Shape], str]) -> tuple[Shape, ...]:
    """The largest of a half, a quarter, ... of the smallest size that fits the GPU; none where a size does."""
    of = kernel.compute.op
    if not sizes or not all(beyond(kernel, shape_of(of, size)).startswith(NEEDS) for size in sizes):
        return ()
    shape, twice = shape_of(of, min(sizes)), shape_of(of, 2 * min(sizes))
    scaled = [axis for axis in "mnk" if getattr(twice, axis) != getattr(shape, axis)]
    while scaled and all(getattr(shape, axis) > 1 for axis in scaled):
        shape = replace(shape, **{axis: getattr(shape, axis) // 2 for axis in scaled})
        if kernel.takes(shape) and not beyond(kernel, shape):
            return (shape,)
    return ()


def needed_bytes(problem: Problem, shape: Shape, l2_bytes: int) -> int:
    """An upper bound on a point's device memory, in bytes: operands, copies, float64 reference, L2 flush buffers."""
    size = operations.nbytes(problem, shape)
    copies = max(size, size + timing.EVICTION * l2_bytes)
    check = problem.operation.check_bytes(problem, shape)
    # Inputs are drawn in fp32 (fp64 in fp64), the largest last; rounding to 8-bit floats needs temporaries. After the
    # timing other inputs are drawn while the first are still there.
    drawn = {"fp64": 8, "fp8_e4m3": 16, "fp8_e5m2": 16, "int32": 8}.get(problem.dtype_in, 4)
    drawn *= max(operations.counts(problem, shape)[0], default=0)
    workspaces = 2 * WORKSPACE_BYTES
    return max(copies, size + max(check, size + 2 * drawn)) + 2 * timing.EVICTION * l2_bytes + workspaces


def own_bytes(kernel: Kernel, shape: Shape) -> int:
    """Device memory in bytes that a kernel takes on top of its problem's: its workspace, and to judge its error."""
    judged = kernel.promises.error_copies * operations.nbytes(kernel.problem, shape) if kernel.promises.error else 0
    if kernel.problem.operation.matrix_product and kernel.compute.dtype_acc == "fp16":
        block = min(shape.m, operations.REFERENCE_ROWS)
        judged += 16 * shape.m * shape.n + 8 * shape.k * shape.n + 48 * block * shape.n
    return kernel.workspace_bytes(shape) + judged


def one_of(sweep: Mapping[str, Any], kind: str, family: str) -> tuple[str, ...]:
    """The family's one ``toolkit`` or ``cache``, if the section `sweep` gives it one of the listed; else all."""
    every = tuple(sweep[f"{kind}s"])
    one = (sweep.get(f"{kind}_of") or {}).get(family)
    return (one,) if one in every else every


def sizes(sweep: Mapping[str, Any], family: str) -> tuple[int, ...]:
    """The sizes at which the family is timed: of those listed, the ones that `sizes_of` gives it, if there are any."""
    every = tuple(sweep["sizes"].get(family, ()))
    only = (sweep.get("sizes_of") or {}).get(family) or ()
    return tuple(size for size in every if size in only) or every


def is_timed_at(sweep: Mapping[str, Any], family: str, kernel_id: str, size: int) -> bool:
    """Whether a kernel is timed at a size of its family: `kernels_at` may leave some sizes to few kernels."""
    few = (sweep.get("kernels_at") or {}).get(family)
    return not few or size not in few["sizes"] or kernel_id in few["kernels"]


PRODUCTS = 4
"""Products in float64 that a problem's results are judged by: C* and its scale, before and after the timing."""

REFERENCE_SECONDS, LAUNCH_SECONDS, WATCHDOG_SECONDS = 30.0, 5.0, 2.0
"""The most that a problem's reference, a launch, and a launch on a GPU that drives a display may take: some ten
launches stand behind a row, and a display's watchdog ends one after a few seconds."""

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
        return shape.m * shape.n * shape.k / (gpu.sm_count * chips.fp64_per_clock(gpu.compute_capability) * clock)
