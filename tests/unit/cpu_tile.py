"""Enough of cuTile, on NumPy, to run a kernel's source on the CPU, block after block.

No measurement and no replacement for the numerical gate: it proves indices, scales and the order of operations where no
GPU is. Sums of ct.mma are exact here, then rounded to fp32. A launch that begins early sees what the launch before it
writes only once it has waited for that one; until then those arrays hold no numbers.
"""

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro import registry
from gemmrepro.core.dtypes import narrow, widen
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Step

NUMPY = {"float64": np.float64, "float32": np.float32, "int8": np.int8, "int32": np.int32, "int64": np.int64}
LOW = ("fp16", "bf16", "fp8_e4m3")
"""Types without a NumPy type of their own lie in float32, rounded to what they hold."""


@dataclass
class Array:
    """An array in memory: its values, and its type as the registry names it."""

    values: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


def stored(dtype: str) -> type:
    return {"fp64": np.float64, "int32": np.int32}.get(dtype, np.float32)


class Order:
    """What a block of an early launch may see: nothing that the launch before writes, until it waits."""

    def __init__(self) -> None:
        self.announced = False
        self.hidden: list[tuple[np.ndarray, np.ndarray]] = []

    def hide(self, arrays: list[np.ndarray]) -> None:
        """Take the values of `arrays` away until a block waits."""
        self.hidden = [(array, array.copy()) for array in arrays]
        for array in arrays:
            array[...] = -1 if array.dtype.kind == "i" else np.nan

    def wait(self) -> None:
        for array, values in self.hidden:
            array[...] = values
        self.hidden = []

    def announce(self) -> None:
        self.announced = True


def _module(block: list[int], grid: list[int], order: Order) -> types.ModuleType:
    ct = types.ModuleType("cuda.tile")

    def where_in(index: tuple[int, ...], shape: tuple[int, ...], array: Array) -> tuple[slice, ...]:
        starts = [int(i) * size for i, size in zip(index, shape, strict=True)]
        return tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))

    def load(
        array: Array, index: tuple, shape: tuple, order: str = "C", padding_mode: str = "none", latency: int = 1
    ) -> np.ndarray:
        assert latency in range(1, 11)
        array = Array(array.values.T, array.dtype) if order == "F" else array
        found = array.values[where_in(index, shape, array)]
        missing = [(0, size - have) for size, have in zip(shape, found.shape, strict=True)]
        assert padding_mode == "zero" or not any(more for _, more in missing) or found.ndim == 1
        return np.pad(found, missing)

    def store(array: Array, index: tuple, tile: Any) -> None:
        place = where_in(index, np.shape(tile) or (1,), array)
        target = array.values[place]
        target[...] = np.reshape(tile, np.shape(tile) or (1,))[tuple(slice(0, size) for size in target.shape)]

    def astype(x: Any, kind: str) -> Any:
        if kind in LOW:
            return widen(narrow(np.asarray(x, np.float32), kind), kind).astype(np.float32)
        return np.asarray(x).astype(NUMPY[kind])

    def mma(a: np.ndarray, b: np.ndarray, sums: np.ndarray, use_fast_acc: bool = False) -> np.ndarray:
        return (sums.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)

    for name in NUMPY:
        setattr(ct, name, name)
    ct.PaddingMode = types.SimpleNamespace(ZERO="zero")
    ct.Constant = {int: int}
    ct.function = lambda function: function
    ct.kernel = lambda function=None, **hints: function or (lambda hinted: hinted)
    ct.ByTarget = dict
    ct.bid = lambda axis: block[axis]
    ct.num_blocks = lambda axis: grid[axis]
    ct.cdiv = lambda x, y: -(-x // y)
    ct.zeros = lambda shape, kind: np.zeros(shape, NUMPY[kind])
    ct.load, ct.store, ct.astype, ct.mma = load, store, astype, mma
    ct.bitcast = lambda x, kind: np.asarray(x).view(NUMPY[kind])
    ct.where, ct.abs, ct.maximum = np.where, np.abs, np.maximum
    ct.max = lambda x, axis=None, keepdims=False: np.max(x, axis=axis, keepdims=keepdims)
    ct.static_iter = iter
    ct.grid_dependency_control_wait = order.wait
    ct.grid_dependency_control_launch_dependents = order.announce
    return ct


def functions(kernel: Kernel, block: list[int], grid: list[int], order: Order | None = None) -> dict[str, Any]:
    """What the source of `kernel` defines; `block` is where the index of the block at hand is put, `grid` how many."""
    saved = {name: sys.modules.get(name) for name in ("cuda", "cuda.tile")}
    tile = _module(block, grid, order or Order())
    package = types.ModuleType("cuda")
    package.tile = tile
    sys.modules |= {"cuda": package, "cuda.tile": tile}
    try:
        found: dict[str, Any] = {"__name__": "source"}
        exec(compile(kernel.source_path.read_text(), str(kernel.source_path), "exec"), found)
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return found


class Launches:
    """A kernel's launches on the CPU, with the interface of gemmrepro.gpu.Launches."""

    def __init__(self, kernel: Kernel, a: np.ndarray, b: np.ndarray) -> None:
        n = b.shape[0 if kernel.compute.layout == "row,col,row" else 1]
        self.kernel, self.shape = kernel, Shape(a.shape[0], n, a.shape[1])
        kernel.check(self.shape)
        self._block, self._grid, self._order = [0, 0, 0], [1, 1, 1], Order()
        self._functions = functions(kernel, self._block, self._grid, self._order)
        c = np.full((self.shape.m, self.shape.n), np.nan)
        self.operands = {"a": a, "b": b, "c": c}
        self.workspace = {
            name: np.full(one.lengths(self.shape), -1 if one.dtype == "int32" else np.nan, stored(one.dtype))
            for name, one in kernel.run.workspace.items()
        }
        self._dtypes = {"a": kernel.compute.dtype_in, "b": kernel.compute.dtype_in, "c": kernel.compute.dtype_out}
        self._dtypes |= {name: one.dtype for name, one in kernel.run.workspace.items()}

    def bind(self, *entries: str, **arrays: np.ndarray) -> Callable[[], None]:
        return lambda: [self.do(step, **arrays) for step in self.kernel.steps_at(self.shape) if step.entry in entries]

    def __call__(self, entry: str, **arrays: np.ndarray) -> None:
        self.bind(entry, **arrays)()

    def do(self, step: Step, **arrays: np.ndarray) -> None:
        """One launch of a step."""
        known = {**self.operands, **self.workspace, **arrays}
        names = [one if isinstance(one, int) else one.removeprefix("array:") for one in step.arguments]
        given = [name if isinstance(name, int) else Array(known[name], self._dtypes[name]) for name in names]
        launch = step.launch(self.shape)
        assert self._order.announced or not launch.early, f"{step.entry} is early, and nothing lets it begin"
        self._grid[:] = launch.grid
        self._order.announced = False
        # A step writes its last array. What an earlier step wrote is out of an early block's sight; C counts, too,
        # since a block that stores before it waits may end before the launch that it follows.
        written = [known[name] for name in (*self.workspace, "c") if name in names]
        for index in range(self._grid[0]):
            self._block[0] = index
            if launch.early:
                self._order.hide(written)
            with np.errstate(invalid="ignore", over="ignore", under="ignore"):
                self._functions[step.function or step.entry](*given, *self.kernel.part(step).params.values())
            assert not self._order.hidden, f"a block of {step.entry} never waits"

    def read(self, array: np.ndarray) -> np.ndarray:
        return array

    def run(self) -> np.ndarray:
        """The whole kernel; returns C."""
        if self.kernel.run.program is not None:
            self.kernel.run.program(self)
        else:
            alone = Step(self.kernel.code.entry, self.kernel.launch, self.kernel.call.arguments)
            for step in self.kernel.steps_at(self.shape) or (alone,):
                self.do(step)
        return self.operands["c"]


def multiply(kernel_id: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C of a kernel of several launches."""
    return Launches(registry.kernel(kernel_id), a, b).run()
