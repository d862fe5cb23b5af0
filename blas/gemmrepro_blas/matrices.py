"""Matrices on a GPU as BLAS sees them: a pointer, two lengths, a leading dimension, and whether rows lie along it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemmrepro.errors import UserError


@dataclass(frozen=True)
class Kind:
    """What a function multiplies: its own name, and the type of its elements, by name and as NumPy writes it."""

    caller: str
    element: str
    code: str
    bytes: int


DOUBLES = Kind("dgemm", "float64", "<f8", 8)
SINGLES = Kind("sgemm", "float32", "<f4", 4)

MOST = 2**31
"""Rows, columns and leading dimensions are below this: kernels and cuBLAS count them in 32 bits."""


@dataclass(frozen=True)
class Matrix:
    """A matrix [rows, columns] on a GPU.

    Attributes:
        pointer: its first element.
        ld: elements from one row to the next or, where `by_columns`, from one column to the next.
        by_columns: whether columns are contiguous, as in a transposed view.
        owner: the array, which keeps the memory alive.
        kind: its elements.
    """

    pointer: int
    rows: int
    columns: int
    ld: int
    by_columns: bool
    owner: Any
    kind: Kind = DOUBLES

    @property
    def transposed(self) -> Matrix:
        """Its transpose, in the same memory."""
        return replace(self, rows=self.columns, columns=self.rows, by_columns=not self.by_columns)

    def from_column(self, start: int, stop: int) -> Matrix:
        """Columns `start` to `stop`, in the same memory."""
        step = self.ld if self.by_columns else 1
        return replace(self, pointer=self.pointer + self.kind.bytes * start * step, columns=stop - start)

    def from_row(self, start: int, stop: int) -> Matrix:
        """Rows `start` to `stop`, in the same memory."""
        return self.transposed.from_column(start, stop).transposed

    def overlaps(self, other: Matrix) -> bool:
        """Whether they share an element, or a part of one. Blocks of one array that lie between each other do not."""
        if not self.rows * self.columns * other.rows * other.columns:
            return False
        return bool(np.shares_memory(self._addresses, other._addresses))

    @property
    def _addresses(self) -> np.ndarray:
        """An array of NumPy's in the same place, which is never read: the memory is the GPU's."""
        size = self.kind.bytes
        strides = (size, size * self.ld) if self.by_columns else (size * self.ld, size)
        described = {
            **{"data": (self.pointer, False), "typestr": self.kind.code, "version": 3},
            **{"shape": (self.rows, self.columns), "strides": strides},
        }
        return np.asarray(SimpleNamespace(__array_interface__=described))


def library_of(array: Any) -> str:
    """The package that an array's type is of: ``cupy``, ``torch``."""
    return type(array).__module__.partition(".")[0]


def matrix(array: Any, name: str, written: bool = False, kind: Kind = DOUBLES) -> Matrix:
    """`array` as a matrix: anything with ``__cuda_array_interface__`` or ``__dlpack__`` (CuPy, PyTorch, JAX, Numba).

    Args:
        written: whether it is written to.
        kind: what its elements must be, and who asks.

    Raises:
        UserError: not on a GPU, not a matrix of that kind, tracked by PyTorch's autograd, negated lazily, read-only but
            `written`, at an address that is no element's, too long, or strided in both directions.
    """
    caller, size = kind.caller, kind.bytes
    if getattr(array, "requires_grad", False):
        raise UserError(f"{name} requires a gradient, which {caller} cannot pass on; give it {name}.detach().")
    if library_of(array) == "torch" and array.is_neg():
        raise UserError(f"{name} is a view that PyTorch negates when it is read; give {caller} {name}.resolve_neg().")
    array = _on_device(array, name, kind)
    interface: Mapping[str, Any] = array.__cuda_array_interface__
    if len(interface["shape"]) != 2:
        raise UserError(
            f"{name} has {len(interface['shape'])} dimensions; {caller} takes matrices, so reshape it to two."
        )
    if interface["typestr"] != kind.code:
        raise UserError(
            f"{name} holds {interface['typestr']} and {caller} multiplies {kind.element}; convert {name} to it."
        )
    rows, columns = interface["shape"]
    row_bytes, column_bytes = interface.get("strides") or (size * columns, size)
    ld, by_columns = _leading(rows, columns, row_bytes, column_bytes, name, size)
    pointer, read_only = interface["data"]
    if written and read_only:
        raise UserError(f"{name} is read-only; pass an array that {caller} may write to, or leave {name} out.")
    if pointer % size:
        raise UserError(f"{name} begins at an address that is no multiple of {size}; pass a copy of it.")
    if max(rows, columns) >= MOST:
        raise UserError(f"{name} is {rows} x {columns}; {caller} takes fewer than 2^31 rows and columns.")
    _wait_for(array, interface)
    return Matrix(int(pointer), rows, columns, ld, by_columns, array, kind)


def _wait_for(array: Any, interface: Mapping[str, Any]) -> None:
    """Wait for the stream on which another library than CuPy and PyTorch says that it still writes the array."""
    stream = interface.get("stream")
    if stream and library_of(array) not in ("cupy", "torch"):
        import cupy

        cupy.cuda.ExternalStream(stream).synchronize()


def _on_device(array: Any, name: str, kind: Kind) -> Any:
    """`array`, or a view of it, with ``__cuda_array_interface__``."""
    try:
        has_interface = hasattr(array, "__cuda_array_interface__")
    except (RuntimeError, TypeError):  # PyTorch, of tensors that it cannot describe
        has_interface = False
    if has_interface:
        return array
    cuda = 2  # kDLCUDA, dlpack.h
    if not hasattr(array, "__dlpack_device__"):
        raise UserError(f"{name} is a {type(array).__name__}; {kind.caller} takes arrays of CuPy or PyTorch on a GPU.")
    if array.__dlpack_device__()[0] != cuda:
        raise UserError(f"{name} is on the host; move it to the GPU, with cupy.asarray({name}) or {name}.cuda().")
    import cupy

    try:
        return cupy.from_dlpack(array)
    except Exception as error:  # BufferError, TypeError, RuntimeError or ValueError, by library and type
        raise UserError(
            f"{name} cannot be passed on ({error}); give {kind.caller} a {kind.element} array of CuPy or PyTorch."
        ) from None


def _leading(rows: int, columns: int, row_bytes: int, column_bytes: int, name: str, size: int) -> tuple[int, bool]:
    """(leading dimension in elements, whether columns are contiguous)."""
    if not rows * columns:  # of whose strides libraries think differently
        return max(columns, 1), False
    if (column_bytes == size or columns == 1) and (rows == 1 or _fits(row_bytes, columns, size)):
        return (row_bytes // size if rows > 1 else max(columns, 1)), False
    if (row_bytes == size or rows == 1) and (columns == 1 or _fits(column_bytes, rows, size)):
        return (column_bytes // size if columns > 1 else max(rows, 1)), True
    raise UserError(
        f"{name} has strides of {row_bytes} and {column_bytes} bytes, so neither its rows nor its columns are "
        "contiguous and apart; pass a contiguous copy of it."
    )


def _fits(stride: int, length: int, size: int) -> bool:
    return stride % size == 0 and max(length, 1) <= stride // size < MOST
