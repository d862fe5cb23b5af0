"""The groups of fields that make up a kernel's record, but for its promises and its launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gemmrepro.core.names import TOOLKITS
from gemmrepro.operations import Problem, Shape
from gemmrepro.registry.launches import TensorMap

UNSTATED = ""
"""A baseline that a record forgot."""


@dataclass(frozen=True)
class Compute:
    """What is computed.

    Attributes:
        op: the operation (`gemmrepro.operations`).
        dtype_in, dtype_acc, dtype_out: types of the inputs, of the running sums and of the output.
        layout: of A, B and C; ``row,col,row`` stores B as [n, k].
        d: of a product by slices, the cut p + q < d; it tells apart rows of kernels that differ in nothing else.
    """

    op: str = "gemm"
    dtype_in: str = "fp32"
    dtype_acc: str = "fp32"
    dtype_out: str = "fp32"
    layout: str = "row,row,row"
    d: int | None = None

    @property
    def problem(self) -> Problem:
        return Problem(self.op, self.dtype_in, self.dtype_out, self.layout)


@dataclass(frozen=True)
class Code:
    """What is compiled.

    Attributes:
        entry: the entry point. A kernel of CuTe's DSL has the name that the DSL gives it, its function's followed by
            ``_0``; one in cuTile has the function's.
        compiler: one of `compilers.COMPILERS`.
        function: the function of a cuTile source, where it is not called like `entry`.
        params: constants of the source (tile sizes) by lower-case name. The record repeats what the source says;
            `check` compares them.
        defines: macros for nvcc (see `parameters`); of a cuTile source, the function's constants.
        headers: files that the source includes, relative to kernels/; their content is part of the build key.
        packages: Python packages whose C++ headers the source includes (``nvidia-cutlass``).
        flags: flags for nvcc beyond those of every kernel.
        ptx: the one architecture (``80``) whose PTX all machine code is made from: where templates take nvcc's front
            end seconds, they take them once.
    """

    entry: str
    compiler: str = "nvcc"
    function: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    ptx: str = ""


@dataclass(frozen=True)
class Call:
    """How the entry point is called.

    Attributes:
        arguments: its parameters in the order of the C signature, by default the operation's usual ones. ``m n k
            iterations`` are integers, ``alpha beta`` floats, ``a b c`` pointers, ``map:a map:b map:c`` descriptors of
            `tensor_maps`. ``array:a`` is an array as cuTile passes it: pointer, lengths, strides, the latter two in
            elements and int32. A GEMM without alpha and beta computes C = A B.
        scalars: values that scalar arguments must have, by name, where the kernel leaves no choice.
        tensor_maps: TMA descriptors by operand.
    """

    arguments: tuple[str | int, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """What the kernel is compiled with, and for.

    Attributes:
        min_capability: the least compute capability, where `targets` names none.
        targets: the only targets it is compiled for (``80``, ``90a``).
        toolkits: CUDA toolkits that compile it.
        chosen_for: the target on which a search chose its constants; on others they may spill registers.
    """

    min_capability: tuple[int, int] = (8, 0)
    targets: tuple[str, ...] = ()
    toolkits: tuple[str, ...] = TOOLKITS
    chosen_for: str = ""


@dataclass(frozen=True)
class Accepts:
    """Shapes that the kernel can run.

    Attributes:
        multiple_of: what an axis (``m n k``) must be a multiple of.
        at_most: upper bounds of axes; of a histogram, k is the number of bins.
        max_elements: upper bound of the elements of each operand, the limit of the index type.
    """

    multiple_of: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    max_elements: int = 2**31 - 1

    def objections(self, shape: Shape) -> Iterator[str]:
        """Why the kernel cannot run `shape`; nothing if it can."""
        for axis, step in self.multiple_of.items():
            if getattr(shape, axis) % step:
                yield f"{axis.upper()} = {getattr(shape, axis)} is not a multiple of {step}"
        for axis, most in self.at_most.items():
            if getattr(shape, axis) > most:
                yield f"{axis.upper()} = {getattr(shape, axis)} is over the {most} that it takes"
        largest = max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        if largest > self.max_elements:
            yield f"a matrix of {largest} elements is over the {self.max_elements} that its indices reach"
        if min(shape.m, shape.n, shape.k) < 1:
            yield "every dimension must be at least 1"


@dataclass(frozen=True)
class Timing:
    """How the sweep times the kernel.

    Attributes:
        baseline: the library call that it is compared with (``cublas.sgemm``), or None; every record states it.
        timed: whether a sweep times it; a kernel for an experiment alone is not.
        timed_to: the largest size (m, n or k) at which it is timed, where a launch takes seconds; 0 for no limit.
    """

    baseline: str | None = UNSTATED
    timed: bool = True
    timed_to: int = 0


@dataclass(frozen=True)
class Story:
    """What the paper says about the kernel.

    Attributes:
        article: the article that has this rung; None for a rung past it.
        published_system: the article's name for it, a system of published.csv.
        idea: the rung's one new idea, a sentence.
        evidence: hardware counters that explain its gain over the kernel that it is compared with.
        gain_over: id of the kernel that it is compared with, where that is not the rung before (`ladders.before`).
    """

    article: str | None = None
    published_system: str | None = None
    idea: str = ""
    evidence: tuple[str, ...] = ()
    gain_over: str = ""
