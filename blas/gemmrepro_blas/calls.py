"""What every product here does with its arguments: scalars, C, the GPU, and the stream that all arrays share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro_blas.matrices import DOUBLES, Kind, Matrix, library_of, matrix


def real_scalar(value: Any, name: str) -> float:
    """`value` as a double. Raises UserError if it is no real number, or none that a double holds."""
    try:
        if isinstance(value, Real):
            return float(value)
    except OverflowError:
        pass
    raise UserError(f"{name} is {value!r}; pass a real number that a double holds.")


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


@contextmanager
def on_stream(stream: int, why: str, *matrices: Matrix) -> Iterator[tuple[int, Any, Any]]:
    """(GPU, stream as cuda.core knows it, as CuPy does), both current; afterwards CuPy's current stream is what it was.

    CuPy's own `with stream` leaves the default stream behind where the one before was set by `use`, and what the caller
    does next would not wait for the product (CuPy's issue 8377).

    Raises:
        UserError: a CUDA graph is being captured on it, which the caller cannot be part of: `why`.
    """
    import cupy
    from cuda.core import Stream

    device = device_of(*matrices)
    legacy = 1  # CU_STREAM_LEGACY: the default stream by a handle that is not zero
    with cupy.cuda.Device(device):
        before = cupy.cuda.get_current_stream()
        cupy_stream = before
        if int(before.ptr) != stream:
            cupy_stream = cupy.cuda.ExternalStream(stream) if stream else cupy.cuda.Stream.null
        refuse_capture(cupy_stream, why)
        cupy_stream.use()
        try:
            yield device, Stream.from_handle(stream or legacy), cupy_stream
        finally:
            before.use()


def refuse_capture(stream: Any, why: str) -> None:
    """Raise UserError if a CUDA graph is being captured; `why` says what the caller does that a graph cannot hold."""
    try:
        capturing = stream.is_capturing()
    except RuntimeError:  # CUDA's answer for the default stream while another one is captured
        capturing = True
    if capturing:
        raise UserError(f"a CUDA graph is being captured, and {why}; call it outside of the capture.")


def device_of(*matrices: Matrix) -> int:
    """The GPU that holds them all. Raises UserError if there are several."""
    import cupy

    found = {cupy.cuda.runtime.pointerGetAttributes(one.pointer).device for one in matrices if one.rows * one.columns}
    if min(found) < 0:  # cudaInvalidDeviceId, of memory that no GPU knows
        raise UserError("A, B or C is at an address that is no GPU's; pass arrays that are on a GPU.")
    if len(found) > 1:
        raise UserError(f"A, B and C are on GPUs {', '.join(map(str, sorted(found)))}; move them to one.")
    return int(found.pop())


def empty(like: Any, rows: int, columns: int, kind: Kind = DOUBLES) -> Any:
    """An array [rows, columns] of the library of `like`, on its GPU; CuPy's of any other library."""
    if library_of(like) == "torch":
        return like.new_empty((rows, columns))
    import cupy

    with cupy.cuda.Device(getattr(getattr(like, "device", None), "id", None)):
        return cupy.empty((rows, columns), kind.code)


def common_stream(a: Any, b: Any, c: Any) -> int:
    """The current stream of A's library. Raises UserError if it is not that of the others: none would wait for it."""
    stream = stream_of(a)
    for name, other in (("B", b), ("C", c)):
        if library_of(other) != library_of(a) and stream_of(other) != stream:
            raise UserError(
                f"A is of {library_of(a)} and {name} of {library_of(other)}, whose current streams differ; convert one "
                "with torch.from_dlpack or cupy.from_dlpack, which copies nothing."
            )
    return stream


def stream_of(array: Any) -> int:
    """The current stream of the library of `array`, as the driver's handle."""
    if library_of(array) == "torch":
        import torch

        return int(torch.cuda.current_stream(array.device).cuda_stream)
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
