"""The groups of fields of a kernel's record, except promises and launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gemmrepro.core.names import TOOLKITS
from gemmrepro.operations import Problem, Shape, counts
from gemmrepro.registry.launches import TensorMap

UNSTATED = ""
"""The baseline of a record that states none, which is an error."""


@dataclass(frozen=True)
class Compute:
    """What is computed.

    Attributes:
        op: the operation (`gemmrepro.operations`).
        dtype_in, dtype_acc, dtype_out: types of the inputs, the accumulators and the output.
        layout: layout of A, B and C; ``row,col,row`` stores B as [n, k], ``col,row,row`` A as [k, m].
        promoted: for sums kept in fp16, how many products along K are added before their sum goes to an fp32 one; 0 if
            none does.
        d: for a product of slices, the cut-off p + q < d; distinguishes rows of kernels that are otherwise the same.
    """

    op: str = "gemm"
    dtype_in: str = "fp32"
    dtype_acc: str = "fp32"
    dtype_out: str = "fp32"
    layout: str = "row,row,row"
    promoted: int = 0
    d: int | None = None

    @property
    def problem(self) -> Problem:
        return Problem(self.op, self.dtype_in, self.dtype_out, self.layout)


@dataclass(frozen=True)
class Code:
    """What is compiled.

    Attributes:
        entry: the entry point. CuTe's DSL names it after the function, followed by ``_0``; cuTile after the function.
        compiler: one of `compilers.COMPILERS`.
        function: the function of a cuTile source if its name is not `entry`.
        params: constants of the source (tile sizes) by lower-case name. They repeat the source's values; `check`
            compares them.
        defines: macros for nvcc (see `parameters`); for a cuTile source, the function's constants.
        headers: files that the source includes, relative to kernels/; their content is part of the build key.
        packages: Python packages whose C++ headers the source includes (``nvidia-cutlass``).
        flags: flags for nvcc in addition to those of every kernel.
        ptx: an architecture (``80``) whose PTX is assembled for all targets, so that nvcc's front end runs only once
            on slow templates.
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
        arguments: its parameters in the order of the C signature; by default `Operation.arguments`. ``m n k
            iterations`` are integers, ``alpha beta`` floats, ``a b c`` pointers, ``map:a map:b map:c`` descriptors from
            `tensor_maps`. ``array:a`` is an array as cuTile passes it: pointer, lengths and strides, both in elements
            and int32. A GEMM without alpha and beta computes C = A B.
        scalars: values that the kernel requires of scalar arguments, by name.
        tensor_maps: TMA descriptors by operand.
    """

    arguments: tuple[str | int, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """Toolkits and targets of the kernel.

    Attributes:
        min_capability: the lowest compute capability; used if `targets` is empty.
        targets: the only targets that it is compiled for (``80``, ``90a``).
        toolkits: CUDA toolkits that compile it.
        chosen_for: the target that its constants were tuned on; on others they may spill registers.
        tuned_sms: SMs of the card whose measured times or energies its choices rest on; 0: on none.
    """

    min_capability: tuple[int, int] = (8, 0)
    targets: tuple[str, ...] = ()
    toolkits: tuple[str, ...] = TOOLKITS
    chosen_for: str = ""
    tuned_sms: int = 0


@dataclass(frozen=True)
class Accepts:
    """Shapes that the kernel can run.

    Attributes:
        multiple_of: required divisors of axes (``m n k``).
        at_most: upper bounds of axes; k of a histogram is the number of bins.
        max_elements: upper bound of the elements of each operand, from the index type.
    """

    multiple_of: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    max_elements: int = 2**31 - 1

    def objections(self, problem: Problem, shape: Shape) -> Iterator[str]:
        """Reasons why the kernel cannot solve `problem` on `shape`; none if it can."""
        for axis, step in self.multiple_of.items():
            if getattr(shape, axis) % step:
                yield f"{axis.upper()} = {getattr(shape, axis)} is not a multiple of {step}"
        for axis, most in self.at_most.items():
            if getattr(shape, axis) > most:
                yield f"{axis.upper()} = {getattr(shape, axis)} exceeds its maximum of {most}"
        inputs, output = counts(problem, shape)
        largest = max((*inputs, output))
        if largest > self.max_elements:
            yield f"an array of {largest} elements exceeds the {self.max_elements} that its indices can address"
        if min(shape.m, shape.n, shape.k) < 1:
            yield "every dimension must be at least 1"


@dataclass(frozen=True)
class Timing:
    """How the sweep times the kernel.

    Attributes:
        baseline: the library call that it is compared with (``cublas.sgemm``), or None; mandatory.
        timed: whether a sweep times it; False for a kernel that only an experiment uses.
        timed_to: the largest size (m, n or k) at which it is timed, if larger launches or their checks take seconds; 0
            for no limit.
    """

    baseline: str | None = UNSTATED
    timed: bool = True
    timed_to: int = 0


@dataclass(frozen=True)
class Story:
    """What the paper says about the kernel.

    Attributes:
        article: the article that contains this rung; None for a rung beyond it.
        published_system: the article's name for it, a system in its numbers.csv.
        idea: the rung's new idea, one sentence.
        evidence: hardware counters that explain its gain over the previous rung.
        expected: what was expected of it before it was measured, where its source does not say so.
        gain_over: id of the kernel that its gain is measured against, if not the default (`ladders.before`).
    """

    article: str | None = None
    published_system: str | None = None
    idea: str = ""
    evidence: tuple[str, ...] = ()
    expected: str = ""
    gain_over: str = ""
