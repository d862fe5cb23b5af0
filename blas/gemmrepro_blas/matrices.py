"""Matrices on a GPU as BLAS sees them: a pointer, two lengths, a leading dimension, and whether rows lie along it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gemmrepro_blas import driver
from gemmrepro_blas.errors import UserError


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


@dataclass(slots=True)
class Matrix:
    """A matrix [rows, columns] on a GPU. Nothing changes one that is made.

    Attributes:
        pointer: its first element.
        ld: elements from one row to the next or, where `by_columns`, from one column to the next.
        by_columns: whether columns are contiguous, as in a transposed view.
        owner: the array, which keeps the memory alive.
        kind: its elements.
        device: its GPU; -1 if it has no element.
    """

    pointer: int
    rows: int
    columns: int
    ld: int
    by_columns: bool
    owner: Any
    kind: Kind = DOUBLES
    device: int = -1

    @property
    def transposed(self) -> Matrix:
        """Its transpose, in the same memory."""
        return self._with(self.pointer, self.columns, self.rows, not self.by_columns)

    def _with(self, pointer: int, rows: int, columns: int, by_columns: bool) -> Matrix:
        return Matrix(pointer, rows, columns, self.ld, by_columns, self.owner, self.kind, self.device)

    def part(self, rows: tuple[int, int], columns: tuple[int, int]) -> Matrix:
        """Rows and columns from the first number to before the second, in the same memory."""
        row, column = (1, self.ld) if self.by_columns else (self.ld, 1)
        first = self.pointer + self.kind.bytes * (rows[0] * row + columns[0] * column)
        return self._with(first, rows[1] - rows[0], columns[1] - columns[0], self.by_columns)

    def from_column(self, start: int, stop: int) -> Matrix:
        """Columns `start` to `stop`, in the same memory."""
        return self.part((0, self.rows), (start, stop))

    def from_row(self, start: int, stop: int) -> Matrix:
        """Rows `start` to `stop`, in the same memory."""
        return self.part((start, stop), (0, self.columns))

    def overlaps(self, other: Matrix) -> bool:
        """Whether they share an element, or a part of one. Blocks of one array that lie between each other do not."""
        if not self.rows * self.columns * other.rows * other.columns:
            return False
        return meet(self.lines, other.lines)

    @property
    def lines(self) -> tuple[int, int, int, int]:
        """(first byte, bytes of a contiguous line, bytes from one line to the next, lines)."""
        size = self.kind.bytes
        width, count = (self.rows, self.columns) if self.by_columns else (self.columns, self.rows)
        return self.pointer, size * width, size * max(self.ld, width), count


def meet(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    """Whether lines, as `Matrix.lines` has them, share a byte; in a number of steps that grows with a logarithm.

    Line i of `one` meets a line of `other` if its last byte less the other's first, modulo the other's distance of
    lines, is below both widths less one. That asks whether a multiple is in a range modulo a number.
    """
    (start, width, step, count), (begin, length, stride, number) = one, other
    if start + (count - 1) * step + width <= begin or begin + (number - 1) * stride + length <= start:
        return False
    ahead, slack = start - begin + width - 1, width + length - 2
    first = max(0, -(ahead // step))
    last = min(count - 1, ((number - 1) * stride + slack - ahead) // step)
    if first > last:
        return False
    at = (ahead + first * step) % stride
    if at <= slack:
        return True
    found = _first_within(step % stride, stride, stride - at, stride - at + slack)
    return found is not None and found <= last - first


def _first_within(step: int, modulus: int, least: int, most: int) -> int | None:
    """The first x >= 0 with least <= x step mod modulus <= most, 0 < least <= most < modulus; by Euclid's division."""
    if step == 0:
        return None
    if 2 * step > modulus:
        return _first_within(modulus - step, modulus, modulus - most, modulus - least)
    x = -(-least // step)
    if x * step <= most:
        return x
    turns = _first_within(modulus % step, step, -most % step, -least % step)
    return None if turns is None else -(-(least + modulus * turns) // step)


_libraries: dict[type, str] = {}
"""The library of each type that was seen."""


def library_of(array: Any) -> str:
    """The library of an array: "torch" and "cupy", of subclasses too, or the name of its type's package."""
    found = _libraries.get(type(array))
    if found is None:
        found = _libraries[type(array)] = _library_of(array)
    return found


def _library_of(array: Any) -> str:
    for name, kind in (("torch", "Tensor"), ("cupy", "ndarray")):
        known = getattr(sys.modules.get(name), kind, None)
        if known is not None and isinstance(array, known):
            return name
    return type(array).__module__.partition(".")[0]


def glance(array: Any) -> tuple[int, tuple[Any, ...]] | None:
    """(address, all else that tells whether and how it is a matrix) of PyTorch's and CuPy's arrays; of others None."""
    library = library_of(array)
    try:
        if library == "torch":
            lies = array.shape, array.stride(), array.dtype, array.get_device()
            return array.data_ptr(), (*lies, array.layout, array.is_cuda, array.requires_grad, array.is_neg())
        if library == "cupy":
            memory = array.data
            return memory.ptr, (array.shape, array.strides, array.dtype, memory.device_id)
    except (AttributeError, RuntimeError, TypeError):  # what has no strides or no memory, which `matrix` explains
        pass
    return None


@dataclass(slots=True)
class _Found:
    """What an array says of itself; strides in bytes."""

    pointer: int | None
    shape: Sequence[int]
    strides: Sequence[int] | None
    code: str
    device: int
    read_only: bool = False


def matrix(array: Any, name: str, written: bool = False, kind: Kind = DOUBLES) -> Matrix:
    """`array` as a matrix: anything with ``__cuda_array_interface__`` or ``__dlpack__`` (CuPy, PyTorch, JAX, Numba).

    Args:
        written: whether it is written to.
        kind: what its elements must be, and who asks.

    Raises:
        UserError: not on a GPU, not a matrix of that kind, tracked by PyTorch's autograd, negated lazily, masked,
            read-only but `written`, without memory, at an address that is no element's, too long, or strided in both
            directions.
    """
    driver.cuda()  # before any library is asked for memory
    caller, size = kind.caller, kind.bytes
    found = _described(array, name, kind)
    if len(found.shape) != 2:
        raise UserError(f"{name} has {len(found.shape)} dimensions; {caller} takes matrices, so reshape it to two.")
    if found.code != kind.code:
        raise UserError(f"{name} holds {found.code} and {caller} multiplies {kind.element}; convert {name} to it.")
    rows, columns = found.shape
    row_bytes, column_bytes = found.strides or (size * columns, size)
    ld, by_columns = _leading(rows, columns, row_bytes, column_bytes, name, kind)
    if written and found.read_only:
        raise UserError(f"{name} is read-only; pass an array that {caller} may write to, or leave {name} out.")
    pointer = found.pointer or 0
    if not pointer and rows * columns:
        raise UserError(f"{name} has no memory of its own; give {caller} the array or tensor that holds the numbers.")
    if pointer % size:
        raise UserError(f"{name} begins at an address that is no multiple of {size}; pass a copy of it.")
    if max(rows, columns) >= MOST:
        raise UserError(f"{name} is {rows} x {columns}; {caller} takes fewer than 2^31 rows and columns.")
    return Matrix(pointer, rows, columns, ld, by_columns, array, kind, found.device if rows * columns else -1)


def _described(array: Any, name: str, kind: Kind) -> _Found:
    library = library_of(array)
    if library == "torch" and hasattr(array, "data_ptr"):
        return _of_torch(array, name, kind)
    if library == "cupy" and hasattr(array, "data"):
        memory = array.data
        return _Found(memory.ptr, array.shape, array.strides, array.dtype.str, memory.device_id)
    try:
        interface = getattr(array, "__cuda_array_interface__", None)
    except (RuntimeError, TypeError):
        interface = None
    return _of_interface(interface, name, kind) if interface is not None else _of_dlpack(array, name, kind)


def _of_torch(tensor: Any, name: str, kind: Kind) -> _Found:
    import torch

    if tensor.requires_grad:
        raise UserError(f"{name} requires a gradient, which {kind.caller} cannot pass on; give it {name}.detach().")
    if not tensor.is_cuda:
        raise UserError(f"{name} is on the host; move it to the GPU, with {name}.cuda().")
    if tensor.layout != torch.strided:
        raise UserError(f"{name} is stored as {tensor.layout}; give {kind.caller} {name}.to_dense().")
    if tensor.is_neg():
        raise UserError(f"{name} is a view that PyTorch negates when it is read; give it {name}.resolve_neg().")
    code = "<f8" if tensor.dtype is torch.float64 else "<f4" if tensor.dtype is torch.float32 else str(tensor.dtype)
    strides = [tensor.element_size() * stride for stride in tensor.stride()]
    return _Found(tensor.data_ptr(), tensor.shape, strides, code, tensor.get_device())


def _of_interface(interface: Mapping[str, Any], name: str, kind: Kind) -> _Found:
    """What the interface says, once the stream is done on which its library says that it still writes the array."""
    if interface.get("mask") is not None:
        raise UserError(f"{name} has a mask, which {kind.caller} would not heed; fill in or take out what is masked.")
    if interface.get("stream"):
        driver.synchronize(interface["stream"])
    pointer, read_only = interface.get("data") or (None, False)
    shape = tuple(interface["shape"])
    device = driver.device_of(pointer) if pointer and 0 not in shape else -1
    return _Found(pointer, shape, interface.get("strides"), interface["typestr"], device, read_only)


def _of_dlpack(array: Any, name: str, kind: Kind) -> _Found:
    cuda = 2  # kDLCUDA, dlpack.h
    if not hasattr(array, "__dlpack_device__"):
        raise UserError(f"{name} is a {type(array).__name__}; {kind.caller} takes arrays of CuPy or PyTorch on a GPU.")
    if array.__dlpack_device__()[0] != cuda:
        raise UserError(f"{name} is on the host; move it to the GPU, with cupy.asarray({name}) or {name}.cuda().")
    try:
        library: Any = sys.modules.get("cupy") or sys.modules.get("torch") or import_module("cupy")
        return _described(library.from_dlpack(array), name, kind)
    except UserError:
        raise
    except Exception as error:  # BufferError, TypeError, RuntimeError or ValueError, by library and type
        raise UserError(
            f"{name} cannot be passed on ({error}); give {kind.caller} a {kind.element} array of CuPy or PyTorch."
        ) from None


def _leading(rows: int, columns: int, row_bytes: int, column_bytes: int, name: str, kind: Kind) -> tuple[int, bool]:
    """(leading dimension in elements, whether columns are contiguous)."""
    size = kind.bytes
    if not rows * columns:  # of whose strides libraries think differently
        return max(columns, 1), False
    if (column_bytes == size or columns == 1) and (rows == 1 or _apart(row_bytes, columns, size)):
        return _short(row_bytes // size if rows > 1 else columns, "rows", name, kind), False
    if (row_bytes == size or rows == 1) and (columns == 1 or _apart(column_bytes, rows, size)):
        return _short(column_bytes // size if columns > 1 else rows, "columns", name, kind), True
    raise UserError(
        f"{name} has strides of {row_bytes} and {column_bytes} bytes, so neither its rows nor its columns are "
        "contiguous and apart; pass a contiguous copy of it."
    )


def _apart(stride: int, length: int, size: int) -> bool:
    return stride % size == 0 and length <= stride // size


def _short(ld: int, lines: str, name: str, kind: Kind) -> int:
    """A leading dimension that 32 bits hold. Raises UserError if it is longer, unless the matrix is too."""
    if ld >= MOST:
        raise UserError(
            f"{lines} of {name} lie {ld} elements apart; {kind.caller} takes less than 2^31, so pass a contiguous copy."
        )
    return ld
