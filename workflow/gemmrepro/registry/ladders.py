"""Relations between the kernels of a family: which are rungs, which share a source file, and their display names.

A *rung* is the first kernel in KERNELS that is made from a source file, per input type. Later kernels from the same
source are its *twins*: of the same type with other constants ("tuned"), or of another type. A GEMM of several launches
is always a rung of its own: its source has functions for many kernels, or it computes something different from other
kernels of that source (other slices, other moduli).
"""

from collections.abc import Collection
from itertools import takewhile

from gemmrepro.registry import families
from gemmrepro.registry.records import Kernel


def compared(family: str) -> list[Kernel]:
    """The GEMM kernels of a family that have a baseline, in the order of KERNELS."""
    return [kernel for kernel in families.kernels(family) if kernel.timing.baseline and kernel.problem.operation.ladder]


def dtypes(family: str) -> list[str]:
    """The input types of a family's GEMM kernels, the main one first."""
    found = dict.fromkeys(kernel.compute.dtype_in for kernel in compared(family))
    main = families.family(family).main_dtype
    return [*([main] if main in found else []), *(dtype for dtype in found if dtype != main)]


def steps(family: str, dtype: str | None = None) -> list[Kernel]:
    """The rungs of a family in an input type, by default its main one."""
    dtype = dtype or next(iter(dtypes(family)), None)
    first: dict[str, Kernel] = {}
    for kernel in compared(family):
        if kernel.compute.dtype_in == dtype:
            first.setdefault(_source_of(kernel), kernel)
    return list(first.values())


def apart(family: str) -> list[Kernel]:
    """The article's rungs in other types whose source no rung of the main ladder shares, in the order of KERNELS."""
    main = {_source_of(kernel) for kernel in steps(family)}
    others = [kernel for dtype in dtypes(family)[1:] for kernel in steps(family, dtype)]
    return [kernel for kernel in others if kernel.story.article and _source_of(kernel) not in main]


def original(kernel: Kernel) -> Kernel | None:
    """The first kernel made from the same source, or None if it is this one."""
    return next((sibling for sibling in _preceding(kernel) if _source_of(sibling) == _source_of(kernel)), None)


def is_tuned(kernel: Kernel) -> bool:
    """Whether an earlier kernel has the same source and type, so that only constants differ."""
    return any(
        _source_of(earlier) == _source_of(kernel) and earlier.compute.dtype_in == kernel.compute.dtype_in
        for earlier in _preceding(kernel)
    )


def twins(kernel: Kernel) -> list[Kernel]:
    """The later kernels made from the source of `kernel`, in the order of KERNELS."""
    later = families.kernels(kernel.family)[len(_preceding(kernel)) + 1 :]
    return [sibling for sibling in later if _source_of(sibling) == _source_of(kernel)]


def before(kernel: Kernel, current: Collection[str] = ()) -> Kernel | None:
    """The kernel of the same input type that its gain is measured against; None if there is none.
    It is that of `Story.gain_over`; of a tuned kernel the first of its source; else the previous rung, for an article's
    rung the article's previous one. Rungs without a current row (`current`) are passed over, so that an inserted rung
    changes nothing until it is measured; where neither it nor an earlier rung is current, none is."""
    if not kernel.timing.baseline or not kernel.problem.operation.ladder:
        return None
    if kernel.story.gain_over:
        return families.kernel(kernel.story.gain_over)
    ladder = steps(kernel.family, kernel.compute.dtype_in)
    if is_tuned(kernel):
        return _rung_of_source(kernel, ladder)
    first = steps(kernel.family)
    rungs = first if _rung_of_source(kernel, first) else ladder
    sources = [_source_of(rung) for rung in rungs]
    earlier = [
        (rung, _rung_of_source(rung, ladder))
        for rung in rungs[: sources.index(_source_of(kernel))]
        if rung.story.article or not kernel.story.article
    ]
    measured = [(rung, own) for rung, own in earlier if (own or rung).id in current]
    compared_with = measured or ([] if kernel.id in current else earlier)
    return compared_with[-1][1] if compared_with else None


def _rung_of_source(kernel: Kernel, ladder: list[Kernel]) -> Kernel | None:
    return next((rung for rung in ladder if _source_of(rung) == _source_of(kernel)), None)


def how_made(kernel: Kernel) -> str:
    """Its difference from the first kernel of its source: ``tuned``, ``fp16``, ``fp16 tuned``; empty for the first."""
    if (first := original(kernel)) is None:
        return ""
    other_type = kernel.compute.dtype_in if kernel.compute.dtype_in != first.compute.dtype_in else ""
    return " ".join(filter(None, (other_type, "tuned" if is_tuned(kernel) else "")))


def level_name(kernel: Kernel) -> str:
    """The kernel's name in figures and tables: the article's name, unless an earlier kernel of its rung has it."""
    name = _named(kernel)
    ambiguous = any(_named(earlier) == name for earlier in _preceding(kernel) if earlier.rung == kernel.rung)
    return f"{kernel.rung} {kernel.name}" if ambiguous else name


def _named(kernel: Kernel) -> str:
    first = original(kernel)
    if first is not None and kernel.timing.baseline and kernel.problem.operation.ladder:
        # If the first kernel's name contains its type, a kernel of another type is called by its own name.
        dtype = first.compute.dtype_in
        if dtype in first.name and kernel.compute.dtype_in != dtype and not first.story.published_system:
            return f"{kernel.rung} {kernel.name}"
        return f"{_named(first)}, {how_made(kernel)}"
    return kernel.story.published_system or (f"{kernel.rung} {kernel.name}" if _on_a_ladder(kernel) else kernel.title)


def heading(kernel: Kernel) -> str:
    """The heading of its section; kernels with the same title add their names."""
    name = label(kernel)
    namesakes = [sibling for sibling in families.kernels(kernel.family) if label(sibling) == name]
    return name if len(namesakes) == 1 else f"{name} ({kernel.name})"


def label(kernel: Kernel) -> str:
    """Its name in figures, unique among rungs: its rung and its title."""
    if not _on_a_ladder(kernel):
        return kernel.title
    # The rung may end with the first word of the title: "C1 half" and "half, ...".
    return f"{kernel.rung.removesuffix(kernel.title.split(',')[0]).rstrip()} {kernel.title}"


def _source_of(kernel: Kernel) -> str:
    """A key that all kernels of one rung share: the source, or the id of a GEMM of several launches."""
    return kernel.id if kernel.run.steps and kernel.problem.operation.ladder else kernel.source


def _on_a_ladder(kernel: Kernel) -> bool:
    """Whether its rung is worth printing; a ceiling's is not."""
    return bool(kernel.story.article or (kernel.problem.operation.ladder and kernel.timing.baseline))


def _preceding(kernel: Kernel) -> list[Kernel]:
    """The kernels of its family that precede it in KERNELS."""
    return list(takewhile(lambda sibling: sibling.id != kernel.id, families.kernels(kernel.family)))
