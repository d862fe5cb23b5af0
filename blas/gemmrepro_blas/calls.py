"""What every product does with its arguments: scalars, C, the GPU, memory, and the stream that all arrays share."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

from gemmrepro_blas import driver
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import DOUBLES, Kind, Matrix, glance, library_of, matrix, meet
from gemmrepro_blas.table import KEPT


def real_scalar(value: Any, name: str, kind: Kind = DOUBLES) -> float:
    """`value` as the nearest number of the kind. Raises UserError if it is no real number, or too large for that."""
    if type(value) is float and kind is DOUBLES:
        return value
    try:
        if isinstance(value, Real):
            number = float(value)
            if kind is DOUBLES:
                return number
            (nearest,) = struct.unpack("<f", struct.pack("<f", number))
            return float(nearest)
    except OverflowError:
        pass
    raise UserError(f"{name} is {value!r}; pass a real number that a {kind.element} holds.")


def check_rest(c: Any, beta: float, workspace: Any) -> None:
    """Raise UserError if there is no C for beta, or `workspace` is no number of bytes."""
    if c is None and beta != 0.0:
        raise UserError(f"beta is {beta}, but there is no C to multiply by it; pass c, or leave beta out.")
    if workspace is not None and (not isinstance(workspace, int) or isinstance(workspace, bool) or workspace < 0):
        raise UserError(f"workspace is {workspace!r}; pass a number of bytes, or leave it out.")


def multipliable(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """A and B. Raises UserError unless A has as many columns as B has rows."""
    if a.columns != b.rows:
        raise UserError(
            f"A is {a.rows} x {a.columns} and B is {b.rows} x {b.columns}; A needs as many columns as B has rows. Pass "
            "transpose_a or transpose_b if they are stored transposed."
        )
    return a, b


def target(c: Any, a: Matrix, b: Matrix, kind: Kind = DOUBLES) -> Matrix:
    """C as it is written. Raises UserError if it is not as large as the product, or shares memory with a factor."""
    into = matrix(c, "C", written=True, kind=kind)
    if (into.rows, into.columns) != (a.rows, b.columns):
        raise UserError(f"C is {into.rows} x {into.columns}; pass one of {a.rows} x {b.columns}, as the product is.")
    for name, one in (("A", a), ("B", b)):
        if into.overlaps(one):
            raise UserError(f"C shares memory with {name}, which would change while it is read; pass another C.")
    return into


def fresh(out: Any, a: Matrix, b: Matrix, kind: Kind = DOUBLES) -> Matrix:
    """The product's own new array, as `empty` made it, which needs no look."""
    if a.device < 0 or b.device < 0:
        return target(out, a, b, kind)
    pointer = out.data_ptr() if library_of(out) == "torch" else out.data.ptr
    return Matrix(pointer, a.rows, b.columns, b.columns, False, out, kind, a.device)


class _Lie(NamedTuple):
    """How a call's operands lie: what was found of their metadata, which every check but those of addresses rests on.

    Attributes:
        swapped: whether C lies by columns, so that C^T = B^T A^T is multiplied.
        kinds: of A, B and C as they are multiplied, (rows, columns, ld, by_columns, device).
        lines: of A, B and C as they are passed, what `Matrix.lines` holds after the address.
    """

    swapped: bool
    kinds: list[Any]
    lines: list[Any]

    def at(self, pointers: tuple[int, int, int], arrays: tuple[Any, Any, Any], kind: Kind) -> Operands | None:
        """The operands at these addresses; None if they are missing or crooked, or C shares memory with a factor."""
        at_a, at_b, at_c = pointers
        if not (at_a and at_b and at_c) or (at_a | at_b | at_c) % kind.bytes:
            return None
        a, b, c = arrays
        lines_a, lines_b, lines_c = self.lines
        if c is not None:
            written = (at_c, *lines_c)
            if meet(written, (at_a, *lines_a)) or meet(written, (at_b, *lines_b)):
                return None
        if self.swapped:
            at_a, at_b, a, b = at_b, at_a, b, a
        (m, k, lda, turned_a, device_a), (_, n, ldb, turned_b, device_b), into = self.kinds
        left = Matrix(at_a, m, k, lda, turned_a, a, kind, device_a)
        right = Matrix(at_b, k, n, ldb, turned_b, b, kind, device_b)
        return left, right, None if c is None else Matrix(at_c, m, n, into[2], False, c, kind, into[4])


Operands = tuple[Matrix, Matrix, Matrix | None]
_NEW = 8, None
"""A glance at a C that is to be made, at an address of no importance."""
_known: dict[Any, _Lie] = {}


def operands(a: Any, b: Any, c: Any, turned: tuple[bool, bool], kind: Kind = DOUBLES) -> Operands:
    """A, B and C as they are multiplied, C by rows or None if there is none yet. `turned`: whether A and B are to be.

    All checks are made of every call. What shapes, strides and types decide is kept for the next call that has the
    same.

    Raises:
        UserError: as `matrix`, `multipliable` and `target`.
    """
    driver.cuda()  # before any library is asked for memory
    first, second, third = glance(a), glance(b), _NEW if c is None else glance(c)
    key = None
    if first is not None and second is not None and third is not None:
        key = kind.bytes, turned, first[1], second[1], third[1]
        known = _known.get(key)
        if known is not None:
            found = known.at((first[0], second[0], third[0]), (a, b, c), kind)
            if found is not None:
                return found
    left, right = matrix(a, "A", kind=kind), matrix(b, "B", kind=kind)
    lines = [left.lines[1:], right.lines[1:], None]
    left, right = (left.transposed if turned[0] else left), (right.transposed if turned[1] else right)
    left, right = multipliable(left, right)
    into = None if c is None else target(c, left, right, kind)
    swapped = into is not None and into.by_columns
    if into is not None:
        lines[2] = into.lines[1:]
        if swapped:
            left, right, into = right.transposed, left.transposed, into.transposed
    if key is not None and left.rows and left.columns and right.columns:
        if len(_known) >= KEPT:
            _known.clear()
        kinds = [one and (one.rows, one.columns, one.ld, one.by_columns, one.device) for one in (left, right, into)]
        _known[key] = _Lie(swapped, kinds, lines)
    return left, right, into


class on_gpu(driver.current):
    """The GPU of the matrices, current for a while.

    Raises:
        UserError: they are on several, or it is no Hopper GPU; a CUDA graph is being captured on the stream, which the
            caller cannot be part of: `why`.
    """

    __slots__ = ("_stream", "_why")

    def __init__(self, stream: int, why: str, *matrices: Matrix) -> None:
        self.device = device_of(*matrices)
        driver.multiprocessors(self.device)
        self._stream, self._why = stream, why

    def __enter__(self) -> int:
        self._pushed = driver.push(self.device)
        if driver.is_captured(self._stream):
            self.__exit__()
            raise UserError(f"a CUDA graph is being captured, and {self._why}; call it outside of the capture.")
        return self.device


def device_of(*matrices: Matrix) -> int:
    """The GPU that holds them all. Raises UserError if there are several."""
    device = matrices[-1].device
    for one in matrices:
        if one.device != device or device < 0:
            break
    else:
        return device
    found = {one.device for one in matrices if one.rows * one.columns}
    if min(found) < 0:
        raise UserError("A, B or C is at an address that is no GPU's; pass arrays that are on a GPU.")
    if len(found) > 1:
        raise UserError(f"A, B and C are on GPUs {', '.join(map(str, sorted(found)))}; move them to one.")
    return found.pop()


def _library() -> str:
    """The library that allocates for arrays of neither PyTorch nor CuPy."""
    if "cupy" not in sys.modules and "torch" in sys.modules:
        return "torch"
    return "cupy"


def empty(like: Any, a: Matrix, b: Matrix, kind: Kind = DOUBLES) -> Any:
    """An array for A B, of the library of `like` and on the GPU of A and B; of CuPy or PyTorch for other libraries.

    Raises:
        UserError: the GPU has too little memory left; how to free some.
    """
    device, library = max(a.device, b.device), library_of(like)
    try:
        return _empty(like, (a.rows, b.columns), kind, device)
    except Exception as error:
        if "OutOfMemory" not in type(error).__name__:
            raise
    size = kind.bytes * a.rows * b.columns
    raise _lack(f"C takes {size / 2**30:.1f} GiB", device, library if library in ("torch", "cupy") else _library())


def _empty(like: Any, shape: tuple[int, int], kind: Kind, device: int) -> Any:
    library = library_of(like)
    if library == "torch":
        return like.new_empty(shape)
    if library != "cupy" and _library() == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, kind.element), device=f"cuda:{max(device, 0)}")
    import cupy

    if device < 0 or device == cupy.cuda.runtime.getDevice():
        return cupy.empty(shape, kind.code)
    with cupy.cuda.Device(device):
        return cupy.empty(shape, kind.code)


def common_stream(a: Any, b: Any, c: Any) -> int:
    """The current stream of A's library. Raises UserError if it is not that of the others: none would wait for it."""
    stream = stream_of(a)
    if type(a) is type(b) is type(c):
        return stream
    library = library_of(a)
    for name, other in (("B", b), ("C", c)):
        if library_of(other) != library and stream_of(other) != stream:
            raise UserError(
                f"A is of {library} and {name} of {library_of(other)}, whose current streams differ; convert one "
                "with torch.from_dlpack or cupy.from_dlpack, which copies nothing."
            )
    return stream


def stream_of(array: Any) -> int:
    """The current stream of the library of `array`, as the driver's handle."""
    library = library_of(array)
    if library == "torch":
        return int(_torch_stream(sys.modules["torch"])(array.get_device()))
    if library != "cupy" and _library() == "torch":
        import torch

        return int(torch.cuda.current_stream(getattr(array, "device", None)).cuda_stream)
    import cupy

    return int(cupy.cuda.get_current_stream(getattr(getattr(array, "device", None), "id", -1)).ptr)


def allocated(like: Any, size: int, device: int, need: str) -> tuple[int, Any]:
    """(address, what keeps it alive) of memory on a GPU, from the pool and on the current stream of `like`'s library.

    Args:
        need: what it is for, {} standing for its size in GiB.

    Raises:
        UserError: the GPU has too little memory left; how to free some.
    """
    library = library_of(like)
    if library not in ("torch", "cupy"):
        library = _library()
    try:
        if library == "torch":
            import torch

            held: Any = torch.empty(size, dtype=torch.uint8, device=_torch_device(device))
            return held.data_ptr(), held
        import cupy

        held = cupy.cuda.alloc(size)
        return held.ptr, held
    except Exception as error:
        if "OutOfMemory" not in type(error).__name__:
            raise
    raise _lack(need.format(f"{size / 2**30:.1f}"), device, library, ", or pass workspace= with fewer bytes")


@lru_cache(maxsize=1)
def _torch_stream(torch: Any) -> Callable[[int], int]:
    """PyTorch's current stream on a GPU, at once where it tells without making an object."""
    short = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return short or (lambda device: torch.cuda.current_stream(device).cuda_stream)


@lru_cache(maxsize=KEPT)
def _torch_device(device: int) -> Any:
    import torch

    return torch.device("cuda", device)


def _lack(need: str, device: int, library: str, otherwise: str = "") -> UserError:
    return UserError(f"{need}, which GPU {device} does not have left; free arrays{_other_pool(library)}{otherwise}.")


def _other_pool(library: str) -> str:
    """What frees memory that the other library's pool holds and does not use, if there is any."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and library != "torch" and torch.cuda.is_initialized():
        if torch.cuda.memory_reserved() > torch.cuda.memory_allocated():
            return " or what PyTorch's cache holds, with torch.cuda.empty_cache()"
    if cupy is not None and library != "cupy" and cupy.get_default_memory_pool().free_bytes():
        return " or what CuPy's pool holds, with cupy.get_default_memory_pool().free_all_blocks()"
    return ""
