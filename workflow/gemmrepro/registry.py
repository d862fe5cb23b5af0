"""The registry: what kernels exist, and what each one needs to be built, judged and launched.

``kernels/<family>/family.py`` holds a ``FAMILY`` record and its ``KERNELS``. Importing them needs no GPU
and no CUDA package, so the workflow reads the registry while it builds its graph.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.files import ROOT

KERNELS_DIR = ROOT / "kernels"
TOOLKITS = ("cuda12", "cuda13")


@dataclass(frozen=True)
class Shape:
    """A problem: C[m,n] = A[m,k] B[k,n]. A vector operation of length n has m = k = 1."""

    m: int
    n: int
    k: int

    @classmethod
    def cube(cls, n: int) -> Shape:
        return cls(n, n, n)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Launch:
    """How one launch is shaped. `shared_bytes` is dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0


@dataclass(frozen=True)
class Expect:
    """One thing the article says of a kernel's machine code, as a count of SASS opcodes.

    `opcode` is a regular expression matched against a whole opcode with its modifiers
    (``LDG\\.E\\.128(\\..*)?``); the count over the kernel must lie in [`least`, `most`].
    """

    opcode: str
    why: str
    least: int = 1
    most: int | None = None


@dataclass(frozen=True)
class Kernel:
    """One rung: a source file, its entry point and everything the stages need to know of it.

    `params` are the constants compiled into the source (tile sizes), `scalars` the values its scalar arguments
    must have, by name, where the kernel leaves no choice. `max_elements` bounds each operand: the index type's limit.
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
    max_elements: int = 2**31 - 1
    min_capability: tuple[int, int] = (8, 0)
    toolkits: tuple[str, ...] = TOOLKITS
    headers: tuple[str, ...] = ()
    expects: tuple[Expect, ...] = ()
    baseline: str | None = "cublas.sgemm"
    article: str | None = None
    published_system: str | None = None
    idea: str = ""

    @property
    def family(self) -> str:
        return self.id.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.id.split(".", 1)[1]

    @property
    def source_path(self) -> Path:
        return KERNELS_DIR / self.family / self.source

    @property
    def header_paths(self) -> tuple[Path, ...]:
        return tuple(KERNELS_DIR / header for header in self.headers)

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
        largest = max(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        if largest > self.max_elements:
            wrong.append(f"a matrix of {largest} elements is over the {self.max_elements} that its indices reach")
        if min(shape.m, shape.n, shape.k) < 1:
            wrong.append("every dimension must be at least 1")
        if wrong:
            raise UserError(
                f"{self.id} cannot run {shape}: {'; '.join(wrong)}. Choose another size, or a rung that handles tails."
            )


@dataclass(frozen=True)
class Family:
    """A folder of kernels that share an article, an operation and a baseline."""

    name: str
    title: str
    article: str | None
    summary: str
    figures: tuple[str, ...] = ()


def family_names() -> tuple[str, ...]:
    """Names of the folders under kernels/ that hold a registry, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in KERNELS_DIR.glob("*/family.py")))


@cache
def _module(name: str):
    path = KERNELS_DIR / name / "family.py"
    if not path.is_file():
        raise UserError(f"there is no kernel family '{name}'; known families: {', '.join(family_names())}.")
    spec = importlib.util.spec_from_file_location(f"gemmrepro_family_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def family(name: str) -> Family:
    """The family called `name`. Raises UserError if there is none."""
    return _module(name).FAMILY


def kernels(family_name: str | None = None) -> tuple[Kernel, ...]:
    """All kernels of a family in the order of the article, or of every family."""
    names = family_names() if family_name is None else (family_name,)
    return tuple(kernel for name in names for kernel in _module(name).KERNELS)


def fingerprint(kernel: Kernel) -> str:
    """Everything a stage reads of a record, as text that changes when the record does.

    Rules take it as a parameter, so that a new rung in ``family.py`` reruns nothing of its neighbours. The launch
    is a function, hence it counts by what it answers for a few shapes.
    """
    shapes = [Shape(1, 2**20, 1), *(Shape.cube(n) for n in (512, 4096)), Shape(1024, 2048, 512)]
    record = {one.name: getattr(kernel, one.name) for one in fields(kernel) if one.name != "launch"}
    launches = [str(kernel.launch(shape)) for shape in shapes if kernel.takes(shape)]
    return repr((sorted(record.items(), key=lambda item: item[0]), launches))


def kernel(kernel_id: str) -> Kernel:
    """The kernel called `kernel_id` (``ladder.warptile``). Raises UserError, naming near misses."""
    for candidate in kernels():
        if candidate.id == kernel_id:
            return candidate
    import difflib

    known = [candidate.id for candidate in kernels()]
    near = difflib.get_close_matches(kernel_id, known, n=3, cutoff=0.4) or known
    raise UserError(f"there is no kernel '{kernel_id}'; did you mean {', '.join(near)}?")
