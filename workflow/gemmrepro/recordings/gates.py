"""Whether recorded verdicts of the numerical gate follow from their cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.gates.bounds import allowed_error
from gemmrepro.measure.recording import read_document, refused
from gemmrepro.registry import Kernel

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
"""What a case must hold; one of a variant's also names its `entry`. A schema of 5,000 cases would take seconds."""

ROUNDED = 1.001
"""Errors and bounds are recorded with four digits."""


def check_gates(family: str, path: Path, gpu: str | None = None) -> None:
    """Check a family's recorded verdicts, if there are any.

    A verdict is "passed" if every one of its cases, at least one, passed; a case that passed has a finite error within
    its bound, where the bound is one on the error alone (`Promises.error` adds another, and sums in fp16 a third).

    Args:
        gpu: the name of the GPU of the recording's times; None if it has none.

    Raises:
        UserError: the file is corrupt, or names the first verdict that does not follow.
    """
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
        for name, kinds in _FIELDS.items():
            if type(case[name]) not in kinds:
                return f"case {number} has {case[name]!r} as its {name}"
    failed = [case for case in cases if not case["passed"]]
    if status == "passed" and (failed or not cases):
        return f"it says passed, and {len(failed)} of {len(cases)} cases failed"
    if status == "failed" and not failed and not judged["reason"]:
        return "it says failed, and no case did"
    if status == "not run" and cases:
        return f"it says not run, and has {len(cases)} cases"
    for number, case in enumerate(cases, 1):
        if case["passed"] and (complaint := _wrong(case, kernel)):
            return f"case {number} {complaint}"
    return ""


def _wrong(case: Mapping[str, Any], kernel: Kernel | None) -> str:
    """Why a case cannot have passed; empty if it can."""
    error, gamma = case["err_scaled_max"], case["gamma"]
    if case["message"]:
        return f"passed, and its message is '{case['message']}'"
    if not all(math.isfinite(value) and value >= 0 for value in (gamma, error or 0.0)):
        return "has an error or a bound that is negative or not finite"
    if error is None or kernel is None or not kernel.problem.operation.matrix_product:
        return ""
    if kernel.promises.error is not None or kernel.compute.dtype_acc == "fp16":
        return ""
    allowed = allowed_error(gamma, kernel.compute.dtype_out)
    if allowed is None or error <= ROUNDED * allowed:
        return ""
    return f"passed with an error of {error:g} and a bound of {allowed:.4g}"
