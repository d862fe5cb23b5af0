"""What no GPU can do: limits on rates and clocks that hold whatever the samples say.

A rate of arithmetic is held against that of the same operands and sums: the ceiling measured on the same card where no
other instruction of that card is wider, else what the data sheet or the compute capability gives at the card's highest
clock (`chips.peak`). Where none of them says it, the rate is not checked, and the report lists it (`limit` is None).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import RESTORE
from gemmrepro.errors import UserError
from gemmrepro.measure.recording import CEILINGS, RUN, kernels_behind, named, refused
from gemmrepro.registry import Kernel, chips

Rows = Sequence[Mapping[str, str]]

MARGIN = 1.05
"""How far a rate may exceed a ceiling at the GPU's highest clock."""

PEAKS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("fp32", "fp32"): ("fp32",),
    ("fp64", "fp64"): ("fp64", "fp64_tensor"),
    ("tf32", "fp32"): ("tf32",),
    ("bf16", "fp32"): ("bf16",),
    ("fp16", "fp32"): ("fp16_acc32",),
    ("fp16", "fp16"): ("fp16_acc16",),
    **{(operand, "fp32"): ("fp8",) for operand in ("fp8_e4m3", "fp8_e5m2")},
    **{(operand, "fp16"): ("fp8_acc16",) for operand in ("fp8_e4m3", "fp8_e5m2")},
    ("int8", "int32"): ("int8",),
}
"""The rates of `chips`, the fastest of which is that of the types of operands and sums."""

SCHEME = ("fp16_acc32", "fp8", "int8")
"""The same for a product of wide types that is made of several narrow ones: it is no faster than one of these."""

WIDEST = {8: "mma.sync", 9: "wgmma", 12: "mma.sync"}
"""The widest tensor core instruction by major compute capability, as the ceilings' rungs call it. A ceiling of a
narrower one bounds nothing: tcgen05 of 10 and 11 has no micro-kernel."""


@dataclass(frozen=True)
class Limit:
    """The highest TFLOP/s (or MHz), and where it comes from."""

    tflops: float
    source: str


@dataclass(frozen=True)
class Ceilings:
    """The highest rates measured on a card, by types of operands and sums, carried over to the highest clock."""

    rates: Mapping[tuple[str, str], Limit] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Rows, run: Mapping[str, Any]) -> Ceilings:
        """From the rows of the family CEILINGS and their run.json."""
        gpu, kernels = run["gpu"], {kernel.id: kernel for kernel in registry.kernels(CEILINGS)}
        rates: dict[tuple[str, str], Limit] = {}
        for row in rows:
            kernel, fastest = kernels.get(row["kernel"]), gpu["clock_max_mhz"]
            if not (kernel and bounds(kernel, gpu) and row["tflops"] and row["clock_mhz"] and fastest):
                continue
            pair = _pair(kernel)
            carried = float(row["tflops"]) * max(1.0, fastest / float(row["clock_mhz"]))
            if pair not in rates or carried > rates[pair].tflops:
                rates[pair] = Limit(carried, f"{kernel.id} on the same card, carried over to {fastest:,} MHz")
        return cls(rates)


def bounds(kernel: Kernel, gpu: Mapping[str, Any]) -> bool:
    """Whether a micro-kernel's rate bounds that of its types on a GPU, whose widest instruction it is made of."""
    widest = WIDEST.get(int(str(gpu.get("compute_capability") or 0).split(".")[0]))
    return _pair(kernel) == ("fp32", "fp32") or kernel.rung == widest


def _pair(kernel: Kernel) -> tuple[str, str]:
    return kernel.compute.dtype_in, kernel.compute.dtype_acc


def is_scheme(kernel: Kernel) -> bool:
    """Whether it makes a product of wide types from products of narrow ones, and bounds its error itself."""
    return kernel.compute.dtype_in in ("fp32", "fp64") and kernel.promises.error is not None


def sums(kernel: Kernel) -> str:
    """The types that a kernel's rate depends on, in words: ``fp16 with fp16 sums``."""
    return f"{kernel.compute.dtype_in} by a scheme" if is_scheme(kernel) else "{} with {} sums".format(*_pair(kernel))


def limit(kernel: Kernel, gpu: Mapping[str, Any], ceilings: Ceilings) -> Limit | None:
    """The highest TFLOP/s that a kernel of such types can reach on a GPU; None where nothing says it."""
    if not is_scheme(kernel) and _pair(kernel) in ceilings.rates:
        return ceilings.rates[_pair(kernel)]
    names = SCHEME if is_scheme(kernel) else PEAKS.get(_pair(kernel), ())
    peaks = [peak for name in names if (peak := chips.peak(gpu, name))]
    best = max(peaks, key=lambda peak: peak.value, default=None)
    return None if best is None else Limit(best.value, best.source)


def check_limits(family: str, rows: Rows, run: Mapping[str, Any], ceilings: Ceilings, path: Path) -> None:
    """Check architecture, clock and rate of arithmetic of every current row against the GPU of `run` and its ceilings.

    Raises:
        UserError: names the first row beyond a limit, the limit, and what it follows from.
    """
    gpu, own = run["gpu"], Ceilings() if family == CEILINGS else ceilings
    limits = {kernel.id: limit(kernel, gpu, own) for kernel in registry.kernels(family)}
    major, minor = gpu["compute_capability"].split(".")
    for number, row in enumerate(rows, 2):
        if row["status"] == "stale":
            continue
        place, fastest = f"line {number}", gpu["clock_max_mhz"]
        digits = row["arch"].removeprefix("sm_").rstrip("af")
        if digits[:-1] != major or int(digits[-1]) > int(minor):
            why = f"{named(row)}: {row['arch']} does not run on compute capability {major}.{minor}"
            raise refused(path, place, why)
        if fastest and float(row["clock_mhz"] or 0) > fastest:
            raise _exceeded(path, place, row, "the GPU's clock", f"{row['clock_mhz']} MHz", Limit(fastest, RUN))
        # A library's row belongs to several kernels, whose sums differ.
        known = {sums(kernel): limits[kernel.id] for kernel in kernels_behind(family, row)}
        of, most = max(known.items(), key=lambda item: item[1].tflops if item[1] else math.inf, default=("", None))
        if row["tflops"] and most and float(row["tflops"]) > MARGIN * most.tflops:
            raise _exceeded(path, place, row, of, f"{float(row['tflops']):g} TFLOP/s", most)


def _exceeded(path: Path, place: str, row: Mapping[str, str], of: str, value: str, most: Limit) -> UserError:
    """The error for a row with a value that no card can have: the limit `of` something is `most`."""
    why = f"{named(row)} exceeds the limit of {of}: {value} above {most.tflops:.4g} ({most.source})"
    return UserError(f"{place} of the recording {path}: {why}; {RESTORE}.")
