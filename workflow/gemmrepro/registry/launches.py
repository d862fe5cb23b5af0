"""How kernels are launched: grids, tensor maps, and runs of several launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmrepro.operations import Problem, Shape
from gemmrepro.registry.promises import Expect


@dataclass(frozen=True)
class Launch:
    """Grid (blocks), block (threads) and cluster (blocks) of one launch.

    Attributes:
        shared_bytes: dynamic shared memory per block.
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
        swizzle: the span in bytes within which 16-byte chunks are permuted in shared memory: 0 (none), 32, 64 or 128.
            A row of a swizzled tile must not be wider.
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

    Two launches that may run at the same time need arrays of their own.

    Attributes:
        dtype: its element type.
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
        entry: its entry point.
        launch: grid, block and shared memory for a shape.
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
    """A step that calls cuBLAS: several products of one shape on arrays of the workspace, in sequence.

    Attributes:
        problem: operation, types and layout of each product.
        shape: the shape of one product, for a shape of the kernel.
        arrays: names of A, B and C in the workspace.
        strides: elements between consecutive products' A, B and C.
        count: number of products.
    """

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
        variants: entry points for different shapes. Each must pass the gates; the record's own entry point and tensor
            maps are those of the first.
        choose: the variant that runs a shape.
        steps: several launches in order, or a function from a shape to them. The function may omit steps, but each
            must occur on one of `USUAL_SHAPES`. The record itself describes the main one, its `Code.entry`.
        workspace: arrays beside A, B and C, by name; see `Buffer`.
        program: a host program that decides between launches; its argument is a `gpu.loaded.Launches`.
    """

    variants: tuple[Variant, ...] = ()
    choose: Callable[[Shape], Variant] | None = None
    steps: Steps | Callable[[Shape], Steps] = ()
    workspace: Mapping[str, Buffer] = field(default_factory=dict)
    program: Callable[[Any], None] | None = None
