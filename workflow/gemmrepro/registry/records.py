"""The registry: what kernels exist, and what each one needs to be built, judged and launched.

``kernels/<family>/family.py`` holds a ``FAMILY`` record and its ``KERNELS``. Importing them needs no GPU
and no CUDA package, so the workflow reads the registry while it builds its graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmrepro.core import paths
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.core.names import TOOLKITS
from gemmrepro.errors import UserError
from gemmrepro.operations import ARGUMENTS, LAYOUTS, Problem, Shape

COMPILERS = ("nvcc", "cute_dsl", "cutile")
"""What compiles a source: CUDA C++, CuTe's Python DSL, or cuTile Python."""


@dataclass(frozen=True)
class Launch:
    """How one launch is shaped. `shared_bytes` is dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0


@dataclass(frozen=True)
class TensorMap:
    """The TMA descriptor of one operand: tiles of `box` = (rows, columns) elements of the matrix as it is stored.

    `swizzle` is the span in bytes within which 16-byte pieces are permuted in shared memory: 0, 32, 64 or 128; a row of
    a swizzled tile must not be wider than it.
    """

    box: tuple[int, int]
    swizzle: int = 128


@dataclass(frozen=True)
class Expect:
    """One thing the article says of a kernel's machine code, as a count of SASS opcodes.

    `opcode` is a regular expression matched against a whole opcode with its modifiers
    (``LDG\\.E\\.128(\\..*)?``); the count over the kernel must lie in [`least`, `most`]. `archs` (``90``) says on which
    architectures, where the compiler makes something else of the source on others; by default on all.
    """

    opcode: str
    why: str
    least: int = 1
    most: int | None = None
    archs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Architectures (``80``) for which the compiler refuses a source, and what its message must match (a search).

    The build leaves them out, having seen the refusal; the static gate fails once the compiler accepts the source.
    """

    archs: tuple[str, ...]
    message: str
    why: str


@dataclass(frozen=True)
class Variant:
    """One of several entry points of a source, for some of the shapes: what differs from the kernel's record."""

    entry: str
    launch: Callable[[Shape], Launch]
    params: Mapping[str, int] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()


@dataclass(frozen=True)
class Buffer:
    """An array that the launches of one kernel hand on: element type, and lengths on a shape, the last contiguous.

    `multiples` says what each length is a multiple of, on every shape that the kernel takes; by default of 1.
    """

    dtype: str
    lengths: Callable[[Shape], tuple[int, ...]]
    multiples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One of the launches that make up a run of a kernel; see `Kernel.steps`.

    `arguments` are named as `Kernel.arguments` are, and the arrays of the kernel's workspace by their own names; beside
    those, an int stands for itself (an int32), and ``n=4096`` for another length of n's type. `function` is what of a
    cuTile source is compiled for it, where that is not what `entry` says: two launches of one function on arrays of
    different promises are two entries. `params` and `defines` are the kernel's where they are empty; `expects` and
    `spills` are of this entry point.
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
    """A step that cuBLAS does: `count` products of `problem` on arrays of the workspace, one after the other.

    `shape` is that of one product; `strides` are the elements from one product's A, B and C to those of the next.
    """

    problem: Problem
    shape: Callable[[Shape], Shape]
    arrays: tuple[str, str, str]
    strides: Callable[[Shape], tuple[int, int, int]]
    count: int


Steps = tuple[Step | LibraryStep, ...]
"""What a run does, in this order."""


@dataclass(frozen=True)
class Kernel:
    """One rung: a source file, its entry point and everything the stages need to know of it.

    `params` are the constants compiled into the source (tile sizes), `scalars` the values its scalar arguments
    must have, by name, where the kernel leaves no choice. `max_elements` bounds each operand: the index type's limit.
    `at_most` bounds axes (of a histogram k, its bins).

    `arguments` names the entry point's parameters in the order of its C signature: ``m n k iterations`` are integers,
    ``alpha beta`` floats, ``a b c`` pointers and ``map:a map:b map:c`` the descriptors of `tensor_maps`. ``array:a`` is
    an array as cuTile passes it: its pointer, then its lengths, then its strides, all in elements and int32. A GEMM
    without alpha and beta computes C = A B. `targets` names architecture-specific targets (``90a``) where only those
    will do.
    `compiler` says what compiles the source (`COMPILERS`); a kernel of the Python DSL has for `entry` the name that the
    DSL gives it, its function's with ``_0`` behind. One in cuTile has for entry the function, and for constants those
    parameters that `defines` names (`parameters`); the compiler chooses the threads of its block, and every launch is
    told one. `refusals` are targets that its compiler must refuse, `spills` those where it must be seen to spill.
    `chosen_for` is the target on which a search chose its constants: on others they need not fit the registers.
    `packages` are Python packages whose C++ headers the source includes (``nvidia-cutlass``), `flags` what nvcc needs
    for it beyond the flags of every kernel. `ptx` (``80``) has the machine code of every architecture made from the PTX
    for that one: where templates take nvcc's front end seconds, they take them once.
    `gain_over` is the id of what it improves on, where that is not the rung before it.
    `evidence` names the hardware counters that explain its gain over the rung before, `gate_shapes` the shapes on which
    it does what it does on no smaller one, for the numerical gate to try. What an experiment alone runs is not `timed`;
    where a launch takes seconds, `timed_to` is the largest size (m, n or k) that it is timed at.

    A kernel that runs different code on different shapes names its entry points as `variants`, and `choose` says which
    of them runs a shape (`at`). Every one of them passes the gates (`parts`). What the record itself says of entry and
    tensor maps is the first one's, and its `expects` hold for each.

    A run may be several launches, one after the other: `steps` names them in their order, or is a function that does
    so for a shape, which may do without some of them; each is there on one of the usual shapes (`USUAL_SHAPES`).
    `workspace` names the arrays that they hand on; nothing is known of their content before a run. What the record
    itself says is said of its main launch, `entry`, one of them; a step of that entry may leave out what the record
    has. Where the host decides between launches, `program` does it: it is given something to make them with
    (`gpu.Launches`). `function` is as in `Step`.

    `d` tells apart rows of kernels that differ in a cut of that name alone.
    `error` gives, of A[m,k] and B[k,n] in float64 and their array module, what each element of C may err by design
    beside the rounding of an ordinary sum: what broadcasts to [m,n]; while it is worked out, `error_copies` times the
    bytes of A, B and C together are taken beside them. One that `spoils` makes NaN of the whole row or
    column of C that an Inf or NaN of A or B meets; what `error` says there does not count.
    """

    id: str
    rung: str
    title: str
    source: str
    entry: str
    launch: Callable[[Shape], Launch]
    op: str = "gemm"
    dtype_in: str = "fp32"
    dtype_acc: str = "fp32"
    dtype_out: str = "fp32"
    layout: str = "row,row,row"
    params: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    multiple_of: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    max_elements: int = 2**31 - 1
    min_capability: tuple[int, int] = (8, 0)
    targets: tuple[str, ...] = ()
    toolkits: tuple[str, ...] = TOOLKITS
    headers: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    compiler: str = "nvcc"
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    ptx: str = ""
    refusals: tuple[Refusal, ...] = ()
    spills: tuple[str, ...] = ()
    chosen_for: str = ""
    arguments: tuple[str, ...] = ()
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()
    baseline: str | None = "cublas.sgemm"
    article: str | None = None
    published_system: str | None = None
    idea: str = ""
    evidence: tuple[str, ...] = ()
    gate_shapes: tuple[Shape, ...] = ()
    gain_over: str = ""
    timed: bool = True
    timed_to: int = 0
    variants: tuple[Variant, ...] = ()
    choose: Callable[[Shape], Variant] | None = None
    steps: Steps | Callable[[Shape], Steps] = ()
    workspace: Mapping[str, Buffer] = field(default_factory=dict)
    function: str = ""
    program: Callable[[Any], None] | None = None
    d: int | None = None
    error: Callable[[Any, Any, Any], Any] | None = None
    error_copies: int = 1
    spoils: bool = False

    def __post_init__(self) -> None:
        if not self.arguments:
            object.__setattr__(self, "arguments", ARGUMENTS.get(self.op, ()))
        for name in ("dtype_in", "dtype_acc", "dtype_out"):
            if getattr(self, name) not in DTYPES:
                raise UserError(f"{self.id}: {name} '{getattr(self, name)}' is none of {', '.join(DTYPES)}.")
        if self.compiler not in COMPILERS:
            raise UserError(f"{self.id}: compiler '{self.compiler}' is none of {', '.join(COMPILERS)}.")
        defines = self.defines if self.compiler == "cute_dsl" else {}
        if self.compiler != "nvcc" and (defines or self.flags or self.packages or self.ptx or self.tensor_maps):
            raise UserError(f"{self.id}: defines, flags, packages, ptx and tensor maps are for what nvcc compiles.")
        if self.refusals and self.compiler != "cutile":
            raise UserError(f"{self.id}: only of cuTile's compiler may a record expect a refusal.")
        if self.op == "gemm" and self.layout not in LAYOUTS:
            raise UserError(f"{self.id}: layout '{self.layout}' is none of {' '.join(LAYOUTS)}.")
        if self.program and (callable(self.steps) or not self.steps):
            raise UserError(f"{self.id}: a program makes launches that steps name, the same on every shape.")
        if self.steps and (self.variants or self.entry not in {step.entry for step in self._launches}):
            raise UserError(f"{self.id}: its entry must be one of its steps, and it cannot have variants beside them.")
        named = [name for name in self.arguments if isinstance(name, str)]
        maps = {name.removeprefix("map:") for name in named if name.startswith("map:")}
        if maps != set(self.tensor_maps):
            raise UserError(f"{self.id}: its arguments name the tensor maps {sorted(maps)}; it registers others.")

    @property
    def problem(self) -> Problem:
        return Problem(self.op, self.dtype_in, self.dtype_out, self.layout)

    @property
    def scales(self) -> bool:
        """Whether it computes C = alpha A B + beta C rather than C = A B."""
        return "alpha" in self.arguments

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold its launches: not where the host reads what one wrote before the next."""
        return self.program is None

    @property
    def family(self) -> str:
        return self.id.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.id.split(".", 1)[1]

    @property
    def source_path(self) -> Path:
        return paths.KERNELS_DIR / self.family / self.source

    @property
    def header_paths(self) -> tuple[Path, ...]:
        return tuple(paths.KERNELS_DIR / header for header in self.headers)

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        """Every shape of block that it is launched with, as far as a few usual problems show."""
        return tuple(sorted({self.launch(shape).block for shape in USUAL_SHAPES if self.takes(shape)}))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The records each of which makes a whole run: one a variant, or itself."""
        return tuple(map(self._of, self.variants)) or (self,)

    @property
    def codes(self) -> tuple[Kernel, ...]:
        """A record for every entry point that is compiled: one a variant, one an entry of the steps, or itself."""
        steps: dict[str, Step] = {}
        for step in self._launches:
            steps.setdefault(step.entry, step)
        return tuple(map(self.part, steps.values())) or self.parts

    @property
    def _launches(self) -> tuple[Step, ...]:
        """Its steps that are launches of its own, of the usual shapes that it takes one after the other."""
        shapes = filter(self.takes, USUAL_SHAPES) if callable(self.steps) else USUAL_SHAPES[:1]
        return tuple(step for shape in shapes for step in self.steps_at(shape) if isinstance(step, Step))

    def steps_at(self, shape: Shape) -> Steps:
        """What a run on `shape` does, in this order; nothing where the record describes its only launch."""
        return self.steps(shape) if callable(self.steps) else self.steps

    def part(self, step: Step) -> Kernel:
        """The record of one of the launches alone."""
        main = self if step.entry == self.entry else step
        return replace(
            self,
            entry=step.entry,
            function=step.function,
            launch=step.launch,
            arguments=step.arguments,
            params=step.params or self.params,
            defines=step.defines or self.defines,
            tensor_maps=step.tensor_maps or main.tensor_maps,
            expects=step.expects or main.expects,
            spills=step.spills or main.spills,
            steps=(),
            program=None,
        )

    def workspace_bytes(self, shape: Shape) -> int:
        """Bytes of the arrays that its launches hand on."""
        return sum(DTYPES[one.dtype] * math.prod(one.lengths(shape)) for one in self.workspace.values())

    def at(self, shape: Shape) -> Kernel:
        """The one of `parts` that runs `shape`."""
        return self._of(self.choose(shape)) if self.choose else self

    def _of(self, variant: Variant) -> Kernel:
        return replace(
            self,
            entry=variant.entry,
            launch=variant.launch,
            params=variant.params,
            tensor_maps=variant.tensor_maps,
            expects=(*self.expects, *variant.expects),
            variants=(),
            choose=None,
        )

    def takes(self, shape: Shape) -> bool:
        """Whether this rung can run `shape`."""
        try:
            self.check(shape)
        except UserError:
            return False
        return True

    def check(self, shape: Shape) -> None:
        """Refuse a shape this rung cannot run.

        Raises:
            UserError: names the kernel, the dimension and the multiple it needs.
        """
        wrong = [
            f"{axis.upper()} = {getattr(shape, axis)} is not a multiple of {step}"
            for axis, step in self.multiple_of.items()
            if getattr(shape, axis) % step
        ]
        wrong += [
            f"{axis.upper()} = {getattr(shape, axis)} is over the {most} that it takes"
            for axis, most in self.at_most.items()
            if getattr(shape, axis) > most
        ]
        largest = max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        if largest > self.max_elements:
            wrong.append(f"a matrix of {largest} elements is over the {self.max_elements} that its indices reach")
        if min(shape.m, shape.n, shape.k) < 1:
            wrong.append("every dimension must be at least 1")
        if wrong:
            raise UserError(
                f"{self.id} cannot run {shape}: {'; '.join(wrong)}. Choose another size, or a rung that handles tails."
            )


def targets(kernel: Kernel, archs: Sequence[str]) -> list[str]:
    """Which targets `kernel` is compiled for where the configuration lists `archs`: "90" stands for its "90a" too."""
    if kernel.targets:
        return [target for target in kernel.targets if target in archs or target.rstrip("af") in archs]
    least = kernel.min_capability[0] * 10 + kernel.min_capability[1]
    return [arch for arch in archs if arch.rstrip("af").isdigit() and int(arch.rstrip("af")) >= least]


def parameters(params: Mapping[str, int]) -> dict[str, str]:
    """`Kernel.defines` that hand `params` to a source's PARAMETERS macro; names are in capitals in the source."""
    return {"PARAMETERS": ",".join(f"{name.upper()}={value}" for name, value in params.items())}


USUAL_SHAPES = (Shape(1, 2**20, 1), *(Shape.cube(n) for n in (512, 4096)), Shape(1024, 2048, 512))
"""Shapes for which a launch is asked, to tell it from another."""
