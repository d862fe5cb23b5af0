"""The launch table: grids and lengths by shape, and where the binaries are.

A wheel holds it as table.json, with the binaries beside it. In a checkout `export` makes it of today's records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gemmrepro_blas.errors import UserError

PACKED = Path(__file__).parent / "table.json"
BYTES = {"fp64": 8, "fp32": 4, "int32": 4, "bf16": 2, "int8": 1}
KEPT = 256
"""Shapes whose launches and lengths are kept from one call to the next."""


class Shape(NamedTuple):
    """The size of a product, C[m,n] = A[m,k] B[k,n]."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"


class Launch(NamedTuple):
    """Blocks, threads of a block, blocks of a cluster if there are any, and bytes of shared memory of a block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0


class Step:
    """One launch of a kernel.

    Attributes:
        entry: its entry point.
        arguments: names of arrays, axes and scalars, integers for themselves, and ``map:`` before a tensor map.
        maps: rows, columns and swizzled bytes of each map's boxes.
    """

    def __init__(self, packed: Mapping[str, Any]) -> None:
        self.entry: str = packed["entry"]
        self.arguments = tuple(packed["arguments"])
        self.maps = {name: tuple(box) for name, box in packed["maps"].items()}
        self._grid = _formula(packed["grid"])
        self._rest = (tuple(packed["block"]), tuple(packed["cluster"]) or None, packed["shared"])
        self.launch = lru_cache(maxsize=KEPT)(self._launch)

    def _launch(self, shape: Shape, sms: int) -> Launch:
        """The launch of a product of this shape, on a GPU of `sms` multiprocessors."""
        return Launch(self._grid(shape.m, shape.n, shape.k, sms), *self._rest)


class Kernel:
    """One binary: its launches by entry point, in order, and its arrays beside A, B and C by name.

    Attributes:
        arrays: element type of each, and its lengths by m, n, k and multiprocessors.
        longest_k: what it takes at a time.
    """

    def __init__(self, name: str, packed: Mapping[str, Any]) -> None:
        self.name = name
        self.steps = {step["entry"]: Step(step) for step in packed["steps"]}
        self.arrays = {array: (dtype, _formula(lengths)) for array, (dtype, lengths) in packed["arrays"].items()}
        self.params: Mapping[str, int] = packed["params"]
        self.longest_k: int = packed["longest_k"]

    def lengths(self, name: str, shape: Shape) -> tuple[str, tuple[int, ...]]:
        """Element type and lengths of an array."""
        dtype, formula = self.arrays[name]
        return dtype, formula(shape.m, shape.n, shape.k, 1)


def _formula(texts: list[str]) -> Callable[[int, int, int, int], Any]:
    """The function of m, n, k and sms that expressions of `export` stand for, a tuple."""
    made: Callable[[int, int, int, int], Any] = eval(f"lambda m, n, k, sms: ({', '.join(texts)},)")
    return made


@cache
def table() -> Mapping[str, Any]:
    """The whole table, as `export.table` describes it."""
    if PACKED.is_file():
        packed: Mapping[str, Any] = json.loads(PACKED.read_text())
        return packed
    try:
        from gemmrepro_blas import export
    except ImportError as error:
        raise UserError(
            f"gemmrepro_blas has no launch table ({error}); install its wheel, or put the checkout's folder workflow "
            "on PYTHONPATH."
        ) from None
    return export.table()


@cache
def kernel(name: str) -> Kernel:
    """The launches of one binary."""
    return Kernel(name, table()["kernels"][name])


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def halved(
    shape: Shape, tile: Sequence[int], needed: Callable[[Shape], int], granted: int | None, sides: str = "ab"
) -> Shape:
    """The block of C that fits in `granted` bytes: all of it, or its longer side halved, to whole tiles, until it fits.

    Args:
        needed: bytes that a block takes.
        sides: "a" where the rows may be halved, "b" where the columns may.

    Returns:
        The smallest block where none fits.
    """
    block, (height, width) = shape, tile
    while granted is not None and needed(block) > granted:
        by_rows, by_columns = "a" in sides and block.m > height, "b" in sides and block.n > width
        if by_rows and (block.m >= block.n or not by_columns):
            block = block._replace(m=ceil_div(ceil_div(block.m, 2), height) * height)
        elif by_columns:
            block = block._replace(n=ceil_div(ceil_div(block.n, 2), width) * width)
        else:
            break
    return block


@lru_cache(maxsize=KEPT)
def tiles(m: int, n: int) -> int:
    """Tiles of C that `dgemm` decides on."""
    height, width = table()["tile"]
    return ceil_div(m, height) * ceil_div(n, width)


@lru_cache(maxsize=KEPT)
def usable(name: str, binary: str | Path | None = None, built: Path | None = None) -> Path:
    """The fat binary of the kernel `name`: `binary`, or the wheel's, or what the build stage left in `built`.

    Raises:
        UserError: there is none; or that of the build stage is of other sources than today's, whose launches it gets.
    """
    if binary is not None or PACKED.is_file():
        path = Path(binary) if binary is not None else PACKED.parent / f"{name}.fatbin"
        if not path.is_file():
            raise UserError(f"the binary {path} is missing; install the wheel again, or pass another as binary=.")
        return path
    from gemmrepro_blas import export

    folder = built if built is not None else export.BUILT
    path = folder / f"{name}.fatbin"
    if not path.is_file():
        raise UserError(f"the binary {path} is missing; build it with {export.build_it(name)}, or pass binary=.")
    recorded, today = export.keys(name, folder)
    if recorded != today:
        raise UserError(
            f"{name} in {folder} was built from other sources than today's; build it again with "
            f"{export.build_it(name)}."
        )
    return path


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a workspace lie.

    Attributes:
        arrays: first byte, element type and lengths of each.
        total: bytes of them all.
    """

    arrays: Mapping[str, tuple[int, str, tuple[int, ...]]]
    total: int

    @property
    def lengths(self) -> dict[str, tuple[int, ...]]:
        return {name: lengths for name, (_, _, lengths) in self.arrays.items()}


def laid_out(lengths: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
    """Arrays of these types and lengths one after the other, each at a multiple of 256 bytes."""
    arrays, start = {}, 0
    for name, (dtype, each) in lengths.items():
        arrays[name] = (start, dtype, each)
        start += ceil_div(math.prod(each) * BYTES[dtype], 256) * 256
    return Layout(arrays, start)
