"""How the kernels of a family relate: which are its rungs, which share a source file, what each is called.

A *step* of a ladder is a source file: the first kernel made from it in a type. Kernels made from it later are its
*twins*: of the same type with other constants ("tuned"), or of another type. A GEMM of several launches is a step by
itself: its source holds functions for many kernels, or it computes something else than its namesakes (other slices,
other moduli).
"""

from __future__ import annotations

from gemmrepro.registry import families
from gemmrepro.registry.records import Kernel

LABEL = 28
"""Characters that a figure has room for beside its axes."""


def compared(family: str) -> list[Kernel]:
    """The GEMM kernels of a family that have a baseline, in the order of the registry."""
    return [kernel for kernel in families.kernels(family) if kernel.timing.baseline and kernel.problem.operation.ladder]


def dtypes(family: str) -> list[str]:
    """The input types that a family multiplies, its main one first."""
    return list(dict.fromkeys(kernel.compute.dtype_in for kernel in compared(family)))


def steps(family: str, dtype: str | None = None) -> list[Kernel]:
    """The rungs of a family in an input type (by default its main one): of every source file the first kernel."""
    dtype = dtype or next(iter(dtypes(family)), None)
    first: dict[str, Kernel] = {}
    for kernel in compared(family):
        if kernel.compute.dtype_in == dtype:
            first.setdefault(_made_from(kernel), kernel)
    return list(first.values())


def original(kernel: Kernel) -> Kernel | None:
    """The first kernel made from the same source, or None if it is this one."""
    for other in families.kernels(kernel.family):
        if _made_from(other) == _made_from(kernel):
            return None if other.id == kernel.id else other
    return None


def is_tuned(kernel: Kernel) -> bool:
    """Whether it is an earlier kernel of the same type with other constants."""
    return any(
        _made_from(other) == _made_from(kernel) and other.compute.dtype_in == kernel.compute.dtype_in
        for other in _until(kernel)
    )


def twins(kernel: Kernel) -> list[Kernel]:
    """The kernels made from the source of `kernel` after it, in the order of the registry."""
    everything = families.kernels(kernel.family)
    after = everything[[other.id for other in everything].index(kernel.id) + 1 :]
    return [other for other in after if _made_from(other) == _made_from(kernel)]


def before(kernel: Kernel) -> Kernel | None:
    """The kernel that its gain is measured against, of the same input type.

    That is what `Story.gain_over` names, else of a tuned kernel the first kernel of its source, else the rung before.
    A rung of the article compares with the article's previous rung, so that what is inserted between two of them moves
    neither; a rung past the article compares with the rung right before it. None where the ladder's second type leaves
    that rung out.
    """
    if not kernel.timing.baseline or not kernel.problem.operation.ladder:
        return None
    if kernel.story.gain_over:
        return families.kernel(kernel.story.gain_over)
    ladder = steps(kernel.family, kernel.compute.dtype_in)
    if is_tuned(kernel):
        return _made_of(kernel, ladder)
    first = steps(kernel.family)
    rungs = first if _made_of(kernel, first) else ladder
    sources = [_made_from(rung) for rung in rungs]
    earlier = [
        rung for rung in rungs[: sources.index(_made_from(kernel))] if rung.story.article or not kernel.story.article
    ]
    return _made_of(earlier[-1], ladder) if earlier else None


def _made_of(kernel: Kernel, ladder: list[Kernel]) -> Kernel | None:
    """The rung of `ladder` that has the source of `kernel`."""
    return next((rung for rung in ladder if _made_from(rung) == _made_from(kernel)), None)


def how_made(kernel: Kernel) -> str:
    """How it differs from the first kernel made from its source: ``tuned``, ``fp16``; empty for the first."""
    if (first := original(kernel)) is None:
        return ""
    other_type = kernel.compute.dtype_in if kernel.compute.dtype_in != first.compute.dtype_in else ""
    return " ".join(filter(None, (other_type, "tuned" if is_tuned(kernel) else "")))


def level_name(kernel: Kernel) -> str:
    """What figures and tables call a kernel: as its article does, if it is the first of that name."""
    name = _named(kernel)
    taken = any(_named(other) == name for other in _until(kernel) if other.rung == kernel.rung)
    return f"{kernel.rung} {kernel.name}" if taken else name


def _named(kernel: Kernel) -> str:
    first = original(kernel)
    if first is not None and kernel.timing.baseline and kernel.problem.operation.ladder:
        # Where the first one's name gives its type, another type's kernel goes by its own.
        if (
            first.compute.dtype_in in first.name
            and kernel.compute.dtype_in != first.compute.dtype_in
            and not first.story.published_system
        ):
            return f"{kernel.rung} {kernel.name}"
        return f"{_named(first)}, {how_made(kernel)}"
    return kernel.story.published_system or (f"{kernel.rung} {kernel.name}" if _on_a_ladder(kernel) else kernel.title)


def label(kernel: Kernel) -> str:
    """`level_name` if it fits a figure, else the rung and the kernel's own name."""
    name = level_name(kernel)
    return name if len(name) <= LABEL or original(kernel) is not None else f"{kernel.rung} {kernel.name}"


def heading(kernel: Kernel) -> str:
    """The heading of its section; two with the same title add their kernels' names."""
    name = _titled(kernel)
    namesakes = [other for other in families.kernels(kernel.family) if _titled(other) == name]
    return name if len(namesakes) == 1 else f"{name} ({kernel.name})"


def _titled(kernel: Kernel) -> str:
    if not _on_a_ladder(kernel):
        return kernel.title
    # A rung may end as the title begins: "C1 half" of "half, an element an access".
    return f"{kernel.rung.removesuffix(kernel.title.split(',')[0]).rstrip()} {kernel.title}"


def _made_from(kernel: Kernel) -> str:
    """What all kernels of one step share."""
    return kernel.id if kernel.run.steps and kernel.problem.operation.ladder else kernel.source


def _on_a_ladder(kernel: Kernel) -> bool:
    """Whether its rung means something to a reader: a ceiling's does not."""
    return bool(kernel.story.article or (kernel.problem.operation.ladder and kernel.timing.baseline))


def _until(kernel: Kernel) -> list[Kernel]:
    """The kernels of its family before it."""
    everything = families.kernels(kernel.family)
    return list(everything[: [other.id for other in everything].index(kernel.id)])
