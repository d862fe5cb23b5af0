"""What each stage reads of a kernel record, as text or hashes that change when it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from gemmrepro.operations import Shape
from gemmrepro.registry.launches import LibraryStep, Step
from gemmrepro.registry.records import USUAL_SHAPES, Kernel


def compiled_from(kernel: Kernel) -> str:
    """What the build stage reads of a record beside its source files, as text that changes when it does."""
    record = (kernel.entry, kernel.min_capability, kernel.targets, sorted(kernel.defines.items()))
    # Named only where there are any, so that most kernels' text stays what it was.
    extra = (kernel.packages, kernel.flags) if kernel.packages or kernel.flags else ()
    extra = (*extra, kernel.ptx) if kernel.ptx else extra
    extra = (*extra, *(variant.entry for variant in kernel.variants))
    codes = kernel.codes if kernel.steps else ()
    extra = (*extra, *(code.entry for code in codes if code.entry != kernel.entry))
    if kernel.compiler != "nvcc":
        extra = (*extra, kernel.compiler, kernel.arguments, kernel.dtype_in, kernel.dtype_out, kernel.blocks)
    if kernel.compiler == "cutile":
        extra = (*extra, kernel.op, kernel.layout, sorted(kernel.multiple_of.items()), kernel.refusals)
    if kernel.function:
        extra = (*extra, kernel.function)
    if kernel.compiler == "cutile" and codes:
        buffers = tuple((name, one.dtype, one.multiples) for name, one in kernel.workspace.items())
        extra = (*extra, buffers, *map(compiled_from, codes))
    return repr((*record, *extra))


def fingerprint(kernel: Kernel) -> str:
    """Everything a stage reads of a record, as text that changes when the record does.

    Rules take it as a parameter, so that a new rung in ``family.py`` reruns nothing of its neighbours. The launch
    is a function, hence it counts by what it answers for a few shapes.
    """
    functions = ("launch", "variants", "choose", "steps", "workspace", "program", "error")
    record = {name: value for name, value in _fields(kernel) if name not in functions}
    launches = [str(kernel.launch(shape)) for shape in USUAL_SHAPES if kernel.takes(shape)]
    if kernel.steps:
        launches += [fingerprint(code) for code in kernel.codes]
    for shape in filter(kernel.takes, USUAL_SHAPES):
        launches += [_told(step, shape) for step in kernel.steps_at(shape)]
        launches += [str((name, one.dtype, one.lengths(shape))) for name, one in kernel.workspace.items()]
    if kernel.variants:
        launches += [kernel.at(shape).entry for shape in USUAL_SHAPES if kernel.takes(shape)]
        launches += [fingerprint(part) for part in kernel.parts]
    return repr((sorted(record.items(), key=lambda item: item[0]), launches))


def _fields(record: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a record's fields, those of its groups one by one."""
    for one in fields(record):
        value = getattr(record, one.name)
        if is_dataclass(value):
            yield from _fields(value)
        else:
            yield one.name, value


def _told(step: Step | LibraryStep, shape: Shape) -> str:
    """What a step does on a shape, as text."""
    if isinstance(step, Step):
        return str((step.entry, step.launch(shape), step.arguments))
    return str((step.problem, step.shape(shape), step.arrays, step.strides(shape), step.count))
