"""Impossible recordings: rates and clocks beyond any GPU's, and gates' verdicts that do not follow from their cases.

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
from gemmrepro.gates.bounds import allowed_error
from gemmrepro.measure.recording import CEILINGS, RUN, kernels_behind, named, read_document, refused
from gemmrepro.registry import Kernel, chips

Rows = Sequence[Mapping[str, str]]

MARGIN = 1.05
"""Factor by which a rate may exceed a ceiling at the GPU's highest clock."""

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
    """The highest TFLOP/s, and where it comes from."""

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
    """Check architecture, clock and rate of every current row against the GPU of `run` and its ceilings."""
    gpu, own = run["gpu"], Ceilings() if family == CEILINGS else ceilings
    limits = {kernel.id: limit(kernel, gpu, own) for kernel in registry.kernels(family)}
    major, minor = gpu["compute_capability"].split(".")
    for number, row in enumerate(rows, 2):
        if row["status"] == "stale":
            continue
        place, fastest, exceeded = f"line {number}", gpu["clock_max_mhz"], ""
        digits = row["arch"].removeprefix("sm_").rstrip("af")
        if digits[:-1] != major or int(digits[-1]) > int(minor):
            why = f"{named(row)}: {row['arch']} does not run on compute capability {major}.{minor}"
            raise refused(path, place, why)
        # A library's row belongs to several kernels, whose sums differ.
        of_sums = {sums(kernel): limits[kernel.id] for kernel in kernels_behind(family, row)}
        of, most = max(of_sums.items(), key=lambda item: item[1].tflops if item[1] else math.inf, default=("", None))
        if fastest and float(row["clock_mhz"] or 0) > fastest:
            exceeded = f"the GPU's clock: {row['clock_mhz']} MHz above {fastest:.4g} ({RUN})"
        elif row["tflops"] and most and float(row["tflops"]) > MARGIN * most.tflops:
            exceeded = f"{of}: {float(row['tflops']):g} TFLOP/s above {most.tflops:.4g} ({most.source})"
        if exceeded:
            why = f"{named(row)} exceeds the limit of {exceeded}"
            raise UserError(f"{place} of the recording {path}: {why}; {RESTORE}.")


_NUMBER = (int, float)
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "shape": (list,),
    "alpha": _NUMBER,
    "beta": _NUMBER,
    "inputs": (str,),
    "seed": (int,),
    "err_scaled_max": (*_NUMBER, type(None)),
    "gamma": _NUMBER,
    "passed": (bool,),
    "message": (str,),
}
"""Fields that a case must hold; a variant's also names its `entry`. A schema of 5,000 cases would take seconds."""

ROUNDED = 1.001
"""Errors and bounds are recorded with four digits."""


def check_gates(family: str, path: Path, gpu: str | None = None) -> None:
    """Check a family's recorded verdicts, if any; `gpu`: the GPU of the recording's times, None if it has none.
    A verdict is "passed" if all of its cases, at least one, passed; a case that passed has a finite error within its
    bound, where that bounds the error alone (`Promises.error` adds another, and sums in fp16 a third)."""
    if not path.is_file():
        return
    verdicts = read_document(path, "gates.schema.yaml")
    known = {kernel.id: kernel for kernel in registry.kernels(family)}
    for kernel_id, verdict in verdicts.items():
        if verdict["kernel"] != kernel_id:
            raise refused(path, kernel_id, f"its verdict is of {verdict['kernel']}")
        if verdict["gpu"] != (gpu or verdict["gpu"]):
            raise refused(path, kernel_id, f"its verdict was given on {verdict['gpu']}, and the recording is of {gpu}")
        for toolkit, judged in verdict["toolkits"].items():
            complaint = _complaint(judged, known.get(kernel_id))
            if complaint:
                raise refused(path, f"the verdict on {kernel_id} {toolkit}", complaint)


def _complaint(judged: Mapping[str, Any], kernel: Kernel | None) -> str:
    """Why a verdict does not follow from its cases; empty if it does."""
    cases, status = judged["cases"], judged["status"]
    for number, case in enumerate(cases, 1):
        if case.keys() - {"entry"} != _FIELDS.keys():
            return f"case {number} has the fields {', '.join(case)}"
        if wrong := [name for name, kinds in _FIELDS.items() if type(case[name]) not in kinds]:
            return f"case {number} has {case[wrong[0]]!r} as its {wrong[0]}"
    failed = [case for case in cases if not case["passed"]]
    if status == "passed" and (failed or not cases):
        return f"it says passed, and {len(failed)} of {len(cases)} cases failed"
    if status == "failed" and not failed and not judged["reason"]:
        return "it says failed, and no case did"
    if status == "not run" and cases:
        return f"it says not run, and has {len(cases)} cases"
    complaints = ((i, _wrong(case, kernel)) for i, case in enumerate(cases, 1) if case["passed"])
    return next((f"case {i} {why}" for i, why in complaints if why), "")


def _wrong(case: Mapping[str, Any], kernel: Kernel | None) -> str:
    """Why a case cannot have passed; empty if it can."""
    error, gamma = case["err_scaled_max"], case["gamma"]
    if case["message"]:
        return f"passed, and its message is '{case['message']}'"
    if not all(math.isfinite(value) and value >= 0 for value in (gamma, error or 0.0)):
        return "has an error or a bound that is negative or not finite"
    alone = kernel is not None and kernel.problem.operation.matrix_product and kernel.promises.error is None
    if error is None or kernel is None or not alone or kernel.compute.dtype_acc == "fp16":
        return ""
    allowed = allowed_error(gamma, kernel.compute.dtype_out)
    if allowed is None or error <= ROUNDED * allowed:
        return ""
    return f"passed with an error of {error:g} and a bound of {allowed:.4g}"
