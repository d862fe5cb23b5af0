"""The groups of fields of a kernel's record, and traits of compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gemmrepro.core.architectures import is_among
from gemmrepro.core.names import TOOLKITS
from gemmrepro.operations import Problem, Shape, counts

UNSTATED = ""
"""The baseline of a record that states none, which is an error."""


@dataclass(frozen=True)
class Compute:
    """The operation, and the types of inputs, accumulators and output.

    Attributes:
        layout: layout of A, B and C; ``row,col,row`` stores B as [n, k], ``col,row,row`` A as [k, m].
        promoted: products along K after which a sum kept in fp16 is added to an fp32 one; 0: never.
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
    """The code that is compiled.

    Attributes:
        entry: the entry point. CuTe's DSL names it after the function, followed by ``_0``; cuTile after the function.
        function: the function of a cuTile source if its name is not `entry`.
        params: constants of the source (tile sizes) by lower-case name, as `check` finds them there.
        defines: macros for nvcc (see `parameters`); for a cuTile source, the function's constants.
        headers: files that the source includes, relative to kernels/.
        packages: Python packages whose C++ headers the source includes (``nvidia-cutlass``).
        flags: flags for nvcc in addition to those of every kernel.
        ptx: an architecture (``80``) whose PTX is assembled for all targets: slow templates are read only once.
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
    """The call of the entry point.

    Attributes:
        arguments: its parameters in the order of the C signature; by default `Operation.arguments`. ``m n k
            iterations`` are integers, ``alpha beta`` floats, ``a b c`` pointers, ``map:a map:b map:c`` descriptors from
            `tensor_maps`. ``array:a`` is an array as cuTile passes it: pointer, lengths and strides, both in elements
            and int32. A GEMM without alpha and beta computes C = A B.
        scalars: values that the kernel requires of scalar arguments, by name.
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
        multiple_of, at_most: divisors and upper bounds of axes (``m n k``); k of a histogram is the number of bins.
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
    """The kernel's part in a sweep.

    Attributes:
        baseline: the library call that it is compared with (``cublas.sgemm``), or None; mandatory.
        timed: False for a kernel that only an experiment uses.
        timed_to: the largest size (m, n or k) at which it is timed, if larger ones take seconds; 0 for no limit.
    """

    baseline: str | None = UNSTATED
    timed: bool = True
    timed_to: int = 0


@dataclass(frozen=True)
class Story:
    """The paper's text about the kernel.

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


@dataclass(frozen=True)
class Expect:
    """One statement about a kernel's machine code: how often a SASS opcode occurs.

    Attributes:
        opcode: a regular expression for a whole opcode with its modifiers (``LDG\\.E\\.128(\\..*)?``).
        why: the idea that the opcode shows, one sentence.
        least, most: inclusive bounds on the count in the entry point's code.
        archs: architectures (``90``) to which it applies; by default all.
    """

    opcode: str
    why: str
    least: int = 1
    most: int | None = None
    archs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Architectures (``80``) for which the compiler must refuse a source; once it accepts, the static gate fails.
    `message` is a regular expression that the compiler's message must contain, `why` the reason in a sentence."""

    archs: tuple[str, ...]
    message: str
    why: str


@dataclass(frozen=True)
class Promises:
    """Promises that the static and the numerical gate check.

    Attributes:
        expects: opcodes of the machine code; they apply to every variant of a kernel.
        spills: targets on which it must spill registers, of one toolkit (``cuda13:80``) or of each (``80``); on no
            other.
        refusals: targets that the compiler must refuse (cuTile only).
        error: a bound on the error of each element of AB by design, beside ordinary rounding; |alpha| scales it. It
            takes A[m,k] and B[k,n] in float64 and their array module; its result broadcasts to [m,n].
        error_copies: memory that `error` needs, in multiples of the bytes of A, B and C together.
        spoils: whether an Inf or NaN in A or B turns the whole affected row or column of C into NaN.
        gate_shapes: further shapes for the numerical gate, with other paths; a `PerCard` where they depend on the card.
    """

    expects: tuple[Expect, ...] = ()
    spills: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    error: Callable[[Any, Any, Any], Any] | None = None
    error_copies: int = 1
    spoils: bool = False
    gate_shapes: Sequence[Shape] = ()

    def refuses(self, arch: str) -> tuple[Refusal, ...]:
        """The refusals that hold for `arch` ("80", "sm_80"); also for one that no record names (`is_among`)."""
        return tuple(refusal for refusal in self.refusals if is_among(arch, refusal.archs))


@dataclass(frozen=True)
class Launch:
    """Grid (blocks), block (threads), cluster (blocks) and dynamic shared memory per block of one launch.

    Attributes:
        early: whether it may begin before the kernel before it on the stream has ended (programmatic dependent launch).
            Such a kernel waits by ``griddepcontrol.wait`` before it reads what another wrote, or writes what one reads.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    early: bool = False


@dataclass(frozen=True)
class TensorMap:
    """The TMA descriptor of one operand.

    Attributes:
        box: (rows, columns) of a tile, in elements of the matrix as stored.
        swizzle: the span in bytes within which 16-byte chunks are permuted in shared memory: 0 (none), 32, 64 or 128. A
            row of a swizzled tile must not be wider.
    """

    box: tuple[int, int]
    swizzle: int = 128


@dataclass(frozen=True)
class Variant:
    """One of several entry points, each for some shapes: the fields that differ from the kernel's record."""

    entry: str
    launch: Callable[[Shape], Launch]
    params: Mapping[str, int] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()


@dataclass(frozen=True)
class Buffer:
    """An array beside A, B and C: what one launch hands on to the next, or the blocks of one launch to each other.

    Attributes:
        lengths: its dimensions for a shape; the last one is contiguous.
        multiples: a divisor of each dimension on every shape that the kernel takes; by default 1.
        zeroed: whether it is zero before the first run; every run must leave it so. Other arrays are undefined.
    """

    dtype: str
    lengths: Callable[[Shape], tuple[int, ...]]
    multiples: tuple[int, ...] = ()
    zeroed: bool = False


@dataclass(frozen=True)
class Step:
    """One launch of a run of several.

    Attributes:
        arguments: as in `Call.arguments`; also arrays of the workspace by name, an int for itself (int32), and
            ``n=4096`` for another value of n's type.
        function: the function of a cuTile source if its name is not `entry`: one function that is launched on arrays
            with different guarantees is compiled to two entry points.
        params, defines: as in `Code`; if empty, the kernel's.
        tensor_maps: as in `Call`; if empty and this is the kernel's main entry point, the kernel's.
        expects, spills: as in `Promises`, for this entry point; if empty and this is the main one, the kernel's.
    """

    entry: str
    launch: Callable[[Shape], Launch]
    arguments: tuple[str | int, ...]
    function: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()
    spills: tuple[str, ...] = ()


@dataclass(frozen=True)
class LibraryStep:
    """A step that calls cuBLAS: `count` products on arrays of the workspace, in sequence.
    `shape`: of one product, for a shape of the kernel; `arrays`: names of A, B and C; `strides`: elements between
    consecutive products' A, B and C."""

    problem: Problem
    shape: Callable[[Shape], Shape]
    arrays: tuple[str, str, str]
    strides: Callable[[Shape], tuple[int, int, int]]
    count: int


Steps = tuple[Step | LibraryStep, ...]
"""The steps of a run, in order."""


@dataclass(frozen=True)
class Run:
    """A run that is not just one launch; empty for most kernels.

    Attributes:
        variants: entry points for different shapes, of which `choose` names one; the record's own is the first.
        steps: several launches in order, or a function from a shape to them. The function may omit steps, but each must
            occur on one of `USUAL_SHAPES`. The record itself describes the main one, its `Code.entry`.
        program: a host program that decides between launches; its argument is a `gpu.loaded.Launches`.
    """

    variants: tuple[Variant, ...] = ()
    choose: Callable[[Shape], Variant] | None = None
    steps: Steps | Callable[[Shape], Steps] = ()
    workspace: Mapping[str, Buffer] = field(default_factory=dict)
    program: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class CompilerTraits:
    """Differences of records between compilers.

    Attributes:
        takes: optional fields of a record that this compiler supports.
        reads_record: whether types, arguments and blocks come from the record, and not from the source.
        chooses_block: whether block and shared memory come from the compiler, and not from the record's launch.
        just_in_time: whether it can also compile at launch, for the arrays that are passed.
    """

    takes: frozenset[str] = frozenset()
    reads_record: bool = True
    chooses_block: bool = False
    just_in_time: bool = False


COMPILERS: Mapping[str, CompilerTraits] = MappingProxyType(
    {
        "nvcc": CompilerTraits(
            takes=frozenset({"defines", "flags", "packages", "ptx", "tensor_maps"}), reads_record=False
        ),
        "cute_dsl": CompilerTraits(takes=frozenset({"tensor_maps"})),
        "cutile": CompilerTraits(takes=frozenset({"defines", "refusals"}), chooses_block=True, just_in_time=True),
    }
)
"""Compilers of CUDA C++, CuTe's Python DSL and cuTile Python, by the name in a record."""
