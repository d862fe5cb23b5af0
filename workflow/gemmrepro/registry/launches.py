"""How kernels are launched: grids, tensor maps, and runs that take several launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmrepro.operations import Problem, Shape
from gemmrepro.registry.promises import Expect


@dataclass(frozen=True)
class Launch:
    """Grid, block and cluster of one launch; `shared_bytes` is dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0


@dataclass(frozen=True)
class TensorMap:
    """The TMA descriptor of one operand.

    Attributes:
        box: (rows, columns) of a tile, in elements of the matrix as it is stored.
        swizzle: the span in bytes within which 16-byte chunks are permuted in shared memory: 0, 32, 64 or 128. A row of
            a swizzled tile must not be wider.
    """

    box: tuple[int, int]
    swizzle: int = 128


@dataclass(frozen=True)
class Variant:
    """One of several entry points of a source, each for some of the shapes: what differs from the kernel's record."""

    entry: str
    launch: Callable[[Shape], Launch]
    params: Mapping[str, int] = field(default_factory=dict)
    tensor_maps: Mapping[str, TensorMap] = field(default_factory=dict)
    expects: tuple[Expect, ...] = ()


@dataclass(frozen=True)
class Buffer:
    """An array that the launches of one kernel hand on.

    Attributes:
        dtype: its element type.
        lengths: its lengths on a shape, the last one contiguous.
        multiples: what each length is a multiple of, on every shape that the kernel takes; by default 1.
    """

    dtype: str
    lengths: Callable[[Shape], tuple[int, ...]]
    multiples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One of the launches that make up a run of a kernel.

    Attributes:
        entry: its entry point.
        launch: its grid on a shape.
        arguments: named as in `Call.arguments`; arrays of the kernel's workspace by their own names, an int stands for
            itself (int32), and ``n=4096`` for another length of n's type.
        function: the function of a cuTile source, where it is not called like `entry`: one function launched on arrays
            of different promises is compiled into two entries.
        params, defines: as in `Code`; the kernel's where empty.
        tensor_maps: as in `Call`; of the kernel's main entry the record's where empty.
        expects, spills: as in `Promises`, for this entry point; of the main entry the record's where empty.
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
    """A step that cuBLAS does: several products of one shape on arrays of the workspace, one after the other.

    Attributes:
        problem: operation, types and layout of each product.
        shape: the shape of one product.
        arrays: names of its A, B and C.
        strides: elements from one product's A, B and C to the next one's.
        count: how many products.
    """

    problem: Problem
    shape: Callable[[Shape], Shape]
    arrays: tuple[str, str, str]
    strides: Callable[[Shape], tuple[int, int, int]]
    count: int


Steps = tuple[Step | LibraryStep, ...]
"""What a run does, in this order."""


@dataclass(frozen=True)
class Run:
    """What a run does beyond the record's one launch; empty for most kernels.

    Attributes:
        variants: entry points for different shapes. Each passes the gates; the record's own entry and tensor maps are
            those of the first.
        choose: which variant runs a shape.
        steps: several launches in their order, or a function from shapes to them; the function may leave some out, but
            each occurs on one of `USUAL_SHAPES`. The record itself describes the main one, its `Code.entry`.
        workspace: arrays that the steps hand on, by name; their content is undefined before a run.
        program: the host's part where it decides between launches; it gets what makes them (`gpu.loaded.Launches`).
    """

    variants: tuple[Variant, ...] = ()
    choose: Callable[[Shape], Variant] | None = None
    steps: Steps | Callable[[Shape], Steps] = ()
    workspace: Mapping[str, Buffer] = field(default_factory=dict)
    program: Callable[[Any], None] | None = None
