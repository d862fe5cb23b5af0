"""Arguments of every launch are known, and TMA supports every tensor map."""

from __future__ import annotations

import re

from gemmrepro.check.findings import Findings
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.registry import Kernel
from gemmrepro.registry.launches import TensorMap

NUMBERS = ("m", "n", "k", "iterations", "alpha", "beta")
SWIZZLES = (0, 32, 64, 128)


def check(kernel: Kernel, findings: Findings) -> None:
    arrays = {*_operands(kernel), *kernel.run.workspace}
    for code in kernel.codes:
        unknown = [argument for argument in code.call.arguments if not _is_known(argument, arrays)]
        findings.require(
            not unknown,
            kernel.id,
            f"{code.code.entry} has the argument {', '.join(map(str, unknown))}; known are numbers "
            f"({', '.join(NUMBERS)}), arrays ({', '.join(sorted(arrays))}), map: and array: before an array.",
        )
        for operand, tensor_map in code.call.tensor_maps.items():
            _check_map(kernel, operand, tensor_map, findings)


def _operands(kernel: Kernel) -> dict[str, str]:
    """The operands of its operation, and their types."""
    names = [each.name for each in kernel.problem.operation.inputs]
    return {name: kernel.problem.dtype_of(name) for name in (*names, "c")}


def _is_known(argument: str | int, arrays: set[str]) -> bool:
    if isinstance(argument, int) or argument in NUMBERS or re.fullmatch(r"[mnk]=\d+", argument):
        return True
    return re.sub(r"^(map|array):", "", argument) in arrays


def _check_map(kernel: Kernel, operand: str, tensor_map: TensorMap, findings: Findings) -> None:
    findings.require(
        tensor_map.swizzle in SWIZZLES, kernel.id, f"the swizzle of {operand} is {tensor_map.swizzle}: use {SWIZZLES}."
    )
    dtypes = _operands(kernel) | {name: buffer.dtype for name, buffer in kernel.run.workspace.items()}
    if operand in dtypes:
        width = tensor_map.box[1] * DTYPES[dtypes[operand]]
        findings.require(
            not tensor_map.swizzle or width <= tensor_map.swizzle,
            kernel.id,
            f"a row of {operand}'s box is {width} bytes, wider than its swizzle of {tensor_map.swizzle}.",
        )
    findings.require(
        all(1 <= length <= 256 for length in tensor_map.box),
        kernel.id,
        f"the box {tensor_map.box} of {operand} is beyond TMA's 256 elements an axis.",
    )
