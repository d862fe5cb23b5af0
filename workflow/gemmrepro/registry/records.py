"""The record of a kernel."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmrepro.core import paths
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.errors import UserError
from gemmrepro.operations import Problem, Shape, operation
from gemmrepro.registry.card import ANOTHER, REFERENCE, of
from gemmrepro.registry.groups import (
    COMPILERS,
    UNSTATED,
    Accepts,
    Call,
    Code,
    CompilerTraits,
    Compute,
    Launch,
    LibraryStep,
    Platform,
    Promises,
    Run,
    Step,
    Steps,
    Story,
    Timing,
    Variant,
)

USUAL_SHAPES = (Shape(1, 2**20, 1), *(Shape.cube(n) for n in (512, 4096)), Shape(1024, 2048, 512))
"""Representative shapes on which launches are evaluated, for keys and checks."""

LARGE_SHAPE = Shape.cube(16384)
"""One on which a launch that depends on the shape has its largest block."""

LARGEST_GRID = (2**31 - 1, 65535, 65535)  # blocks along x, y and z


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One rung: a source file, its entry point, and all that the stages need to know about it.
    `id` is ``family.name``; `rung` its place on the family's ladder (``L7.1``), any text; `title` its section's
    heading; `source` a file in the family's folder; `launch` grid, block and shared memory for a shape. Raises
    UserError if it contradicts itself, or states no baseline."""

    id: str
    rung: str
    title: str
    source: str
    code: Code
    launch: Callable[[Shape], Launch]
    timing: Timing = field(default_factory=Timing)
    compute: Compute = field(default_factory=Compute)
    call: Call = field(default_factory=Call)
    platform: Platform = field(default_factory=Platform)
    accepts: Accepts = field(default_factory=Accepts)
    run: Run = field(default_factory=Run)
    promises: Promises = field(default_factory=Promises)
    story: Story = field(default_factory=Story)

    def __post_init__(self) -> None:
        if not self.call.arguments:
            object.__setattr__(self, "call", replace(self.call, arguments=operation(self.compute.op).arguments))
        for problem in _contradictions(self):
            raise UserError(f"{self.id}: {problem}")

    def with_code(self, **changes: Any) -> Kernel:
        """A copy with these fields of `code` changed; the other ``with_`` methods do the same for their group."""
        return replace(self, code=replace(self.code, **changes))

    def with_call(self, **changes: Any) -> Kernel:
        return replace(self, call=replace(self.call, **changes))

    def with_platform(self, **changes: Any) -> Kernel:
        return replace(self, platform=replace(self.platform, **changes))

    def with_accepts(self, **changes: Any) -> Kernel:
        return replace(self, accepts=replace(self.accepts, **changes))

    def with_promises(self, **changes: Any) -> Kernel:
        return replace(self, promises=replace(self.promises, **changes))

    @property
    def problem(self) -> Problem:
        return self.compute.problem

    @property
    def scales(self) -> bool:
        """Whether it computes C = alpha A B + beta C rather than C = A B."""
        return any("alpha" in code.call.arguments for code in (self, *self.codes))

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold its launches; not if a host program decides between them."""
        return self.run.program is None

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
        return tuple(paths.KERNELS_DIR / header for header in self.code.headers)

    @property
    def params(self) -> Mapping[str, int]:
        """Constants of the source by lower-case name; see `Code.params`."""
        return self.code.params

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        """Every block shape that its launches on `USUAL_SHAPES` have."""
        return tuple(sorted({self.launch(shape).block for shape in USUAL_SHAPES if self.takes(shape)}))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """One record per variant, each a complete run; itself if it has no variants."""
        return tuple(map(self._variant, self.run.variants)) or (self,)

    @property
    def codes(self) -> tuple[Kernel, ...]:
        """One record per compiled entry point: per variant, per entry point of the steps, or itself."""
        steps: dict[str, Step] = {}
        for step in self.own_launches:
            steps.setdefault(step.entry, step)
        return tuple(map(self.part, steps.values())) or self.parts

    @property
    def own_launches(self) -> tuple[Step, ...]:
        """The steps that launch its own code (not a library's), on all `USUAL_SHAPES` that it takes and on any card."""
        steps: list[Step | LibraryStep] = [] if callable(self.run.steps) else list(self.run.steps)
        for card in (REFERENCE, ANOTHER) if callable(self.run.steps) else ():
            with of(card):
                steps += [step for shape in filter(self.takes, USUAL_SHAPES) for step in self.steps_at(shape)]
        return tuple(step for step in steps if isinstance(step, Step))

    def steps_at(self, shape: Shape) -> Steps:
        """The steps of a run on `shape`, in order; empty if the record itself describes the only launch."""
        return self.run.steps(shape) if callable(self.run.steps) else self.run.steps

    def part(self, step: Step) -> Kernel:
        """The record of one launch of a run of several."""
        main = step.entry == self.code.entry
        return replace(
            self,
            launch=step.launch,
            code=replace(
                self.code,
                entry=step.entry,
                function=step.function,
                params=step.params or self.code.params,
                defines=step.defines or self.code.defines,
            ),
            call=replace(
                self.call,
                arguments=step.arguments,
                tensor_maps=step.tensor_maps or (self.call.tensor_maps if main else {}),
            ),
            promises=replace(
                self.promises,
                expects=step.expects or (self.promises.expects if main else ()),
                spills=step.spills or (self.promises.spills if main else ()),
            ),
            run=replace(self.run, steps=(), program=None),
        )

    def workspace_bytes(self, shape: Shape) -> int:
        """Bytes of the intermediate arrays between its launches."""
        buffers = self.run.workspace.values()
        return sum(DTYPES[buffer.dtype] * math.prod(buffer.lengths(shape)) for buffer in buffers)

    def at(self, shape: Shape) -> Kernel:
        """The element of `parts` that runs `shape`."""
        return self._variant(self.run.choose(shape)) if self.run.choose else self

    def _variant(self, variant: Variant) -> Kernel:
        return replace(
            self,
            launch=variant.launch,
            code=replace(self.code, entry=variant.entry, params=variant.params),
            call=replace(self.call, tensor_maps=variant.tensor_maps),
            promises=replace(self.promises, expects=(*self.promises.expects, *variant.expects)),
            run=replace(self.run, variants=(), choose=None),
        )

    def takes(self, shape: Shape) -> bool:
        """Whether `accepts` has no objection to `shape`; `check` also looks at the grids that it takes."""
        return not any(self.accepts.objections(self.problem, shape))

    def check(self, shape: Shape) -> None:
        """Raise UserError, which says what this rung needs, if it cannot run `shape`, or no GPU launches its grid."""
        objections = "; ".join(self.accepts.objections(self.problem, shape)) or self._grids_beyond(shape)
        if objections:
            raise UserError(
                f"{self.id} cannot run {shape}: {objections}. Choose another size, or a rung that handles tails."
            )

    def _grids_beyond(self, shape: Shape) -> str:
        part = self.at(shape)
        own = [step for step in part.steps_at(shape) or (part,) if not isinstance(step, LibraryStep)]
        grids = sorted({step.launch(shape).grid for step in own})
        beyond = [grid for grid in grids if any(map(operator.gt, grid, LARGEST_GRID))]
        return "; ".join(f"a grid of {grid} blocks exceeds {LARGEST_GRID}" for grid in beyond)

    @property
    def compiler_traits(self) -> CompilerTraits:
        """The traits of its compiler, which need no installed compiler."""
        return COMPILERS[self.code.compiler]


def _contradictions(kernel: Kernel) -> Iterator[str]:
    """Every contradiction in a record, as a sentence with the rule that it breaks."""
    compute, code, run = kernel.compute, kernel.code, kernel.run
    for name in ("dtype_in", "dtype_acc", "dtype_out"):
        if getattr(compute, name) not in DTYPES:
            yield f"{name} '{getattr(compute, name)}' is none of {', '.join(DTYPES)}."
    if compute.promoted % 16 or (compute.promoted and compute.dtype_acc != "fp16"):
        yield f"promoted = {compute.promoted} is for sums in fp16, a multiple of the 16 products of an instruction."
    if code.compiler not in COMPILERS:
        yield f"compiler '{code.compiler}' is none of {', '.join(COMPILERS)}."
        return
    optional = {
        **{name: getattr(code, name) for name in ("defines", "flags", "packages", "ptx")},
        "tensor_maps": kernel.call.tensor_maps,
        "refusals": kernel.promises.refusals,
    }
    for name in (each for each, value in optional.items() if value and each not in COMPILERS[code.compiler].takes):
        takers = " or ".join(compiler for compiler, traits in COMPILERS.items() if name in traits.takes)
        yield f"the compiler {code.compiler} takes no {name} from a record; leave them out, or compile with {takers}."
    layouts = operation(compute.op).layouts
    if layouts and compute.layout not in layouts:
        yield f"layout '{compute.layout}' is none of {' '.join(layouts)}."
    if unknown := sorted({*kernel.accepts.multiple_of, *kernel.accepts.at_most} - {"m", "n", "k"}):
        yield f"Accepts names the axis {', '.join(unknown)}; axes are m, n and k."
    yield from _contradictions_of_timing(kernel)
    if run.program and (callable(run.steps) or not run.steps):
        yield "a program needs steps that are the same on every shape."
    if run.steps and (run.variants or code.entry not in {step.entry for step in kernel.own_launches}):
        yield "its entry must be one of its steps, and a kernel with steps cannot have variants."
    named = [name for name in kernel.call.arguments if isinstance(name, str)]
    maps = {name.removeprefix("map:") for name in named if name.startswith("map:")}
    if maps != set(kernel.call.tensor_maps):
        registered = sorted(kernel.call.tensor_maps)
        yield f"its arguments use the tensor maps {sorted(maps)}; Call.tensor_maps has {registered}."


def _contradictions_of_timing(kernel: Kernel) -> Iterator[str]:
    if kernel.timing.baseline == UNSTATED:
        yield "it states no baseline; write timing=Timing(baseline=...), a library call or None."
    if kernel.timing.timed and not kernel.problem.operation.swept:
        yield f"a sweep cannot time the operation {kernel.compute.op}; write Timing(baseline=None, timed=False)."


def targets(kernel: Kernel, archs: Sequence[str]) -> list[str]:
    """The targets that `kernel` is compiled for if the configuration lists `archs`; "90" includes its "90a"."""
    platform = kernel.platform
    if platform.targets:
        return [target for target in platform.targets if target in archs or target.rstrip("af") in archs]
    least = platform.min_capability[0] * 10 + platform.min_capability[1]
    return [arch for arch in archs if arch.rstrip("af").isdigit() and int(arch.rstrip("af")) >= least]


def parameters(params: Mapping[str, int]) -> dict[str, str]:
    """`Code.defines` that pass `params` to a source through the macro PARAMETERS, with names in upper case."""
    return {"PARAMETERS": ",".join(f"{name.upper()}={value}" for name, value in params.items())}
