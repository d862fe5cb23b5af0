"""`dgemm`: a product in double on Hopper's INT8 tensor cores, with a bound for every element.

The bound holds for any input: the device looks at the numbers, takes as many Chinese remainders as the bound needs, and
multiplies in double where they would not do (`ozaki.decided`; `kernels/crt/NOTES.md` has the proof). Where none of it
would gain, cuBLAS's DGEMM multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from gemmrepro.blas import library
from gemmrepro.blas.matrices import Matrix, library_of, matrix
from gemmrepro.blas.program import Factors, Plan, program, usable
from gemmrepro.errors import UserError
from gemmrepro.ozaki import decided

ACCURACIES = ("sqrt", "worst")
LOOSEST = 40
SMALL = 2**33
"""Multiply-adds below which cuBLAS multiplies at once: looking at the numbers would take longer."""


@dataclass(frozen=True)
class Details:
    """How the last stretch of k was multiplied.

    Attributes:
        moduli: 13 to 16; 0 if everything was multiplied in double.
        tiles, native_tiles: tiles of 128 x 192 of C by remainders, and in double.
        gamma: the bound of the tiles by remainders.
    """

    moduli: int
    tiles: int
    native_tiles: int
    gamma: float


def loosening(accuracy: str | float, k: int) -> int:
    """The power of two by which 2 sqrt(k) u may be multiplied and stay within `accuracy` (see `dgemm`).

    Raises:
        UserError: an unknown word, or a number that is not above zero.
    """
    if accuracy == "sqrt":
        return 0
    wanted = k * 2.0**-53 if accuracy == "worst" else accuracy
    if not isinstance(wanted, Real) or isinstance(wanted, bool) or not 0 < wanted < math.inf:
        raise UserError(f"accuracy is {accuracy!r}; choose 'sqrt', 'worst' or a relative error above zero.")
    return max(-LOOSEST, min(LOOSEST, math.floor(math.log2(wanted / decided.gamma(k)))))


def dgemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accuracy: str | float = "sqrt",
    details: bool = False,
    binary: str | Path | None = None,
) -> Any:
    """C = alpha A B + beta C in float64, on the current stream of CuPy or PyTorch.

    It waits until the device has decided how to multiply, a sixth of the whole time at 4096, and returns before the
    product is there. So no CUDA graph can capture it.

    Every element of C satisfies, with u = 2^-53 and C* the exact result,

        |C - C*| <= |alpha| max(gamma, k u / (1 - k u)) (|A||B|) + 3 u (|alpha AB| + |beta C|) + underflow,

    where gamma is what `accuracy` asks for. Inf and NaN come out as in DGEMM. Equal inputs give equal bits.

    Args:
        a, b: A [m,k] and B [k,n] on one GPU, float64: arrays of CuPy or PyTorch, or anything with
            ``__cuda_array_interface__`` or ``__dlpack__``. Transposed and strided views are not copied as long as rows
            or columns are contiguous.
        c: C [m,n], overwritten and returned; by default a new array of A's library. Needed if `beta` is not 0.
        transpose_a, transpose_b: take the transpose of A or B.
        accuracy: gamma. "sqrt": 2 sqrt(k) u, about what a DGEMM's roundings amount to. "worst": k u, the bound that any
            DGEMM has; it takes fewer moduli. Or a number: below k u, elements that are multiplied in double keep k u.
        details: return (C, Details) instead.
        binary: the fat binary of crt.certified; by default the build stage's.

    Raises:
        UserError: operands that do not fit, overlap C, are not on a Hopper GPU or not float64; scalars that are no real
            numbers; arrays of libraries whose current streams differ; a stream that is being captured; no binary, or
            one of other sources; too little memory.
    """
    left, right = _factors(a, b, transpose_a, transpose_b)
    scalars = _scalar(alpha, "alpha"), _scalar(beta, "beta")
    if c is None and scalars[1] != 0.0:
        raise UserError(f"beta is {beta}, but there is no C to multiply by it; pass c, or leave beta out.")
    k = left.columns
    loosened = loosening(accuracy, max(k, 1))
    out = c if c is not None else _empty(a, left.rows, right.columns)
    into = _target(out, left, right)
    if into.by_columns:  # C^T = B^T A^T
        left, right, into = right.transposed, left.transposed, into.transposed
    plan = Plan(0, 0, 0)
    if into.rows and into.columns:
        plan = _multiply(left, right, into, scalars, loosened, usable(binary), _common_stream(a, b, out))
    how = Details(plan.moduli, plan.tiles, plan.native_tiles, decided.gamma(max(k, 1), loosened))
    return (out, how) if details else out


def _scalar(value: Any, name: str) -> float:
    """`value` as a double. Raises UserError if it is no real number, or none that a double holds."""
    try:
        if isinstance(value, Real):
            return float(value)
    except OverflowError:
        pass
    raise UserError(f"{name} is {value!r}; pass a real number that a double holds.")


def _factors(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[Matrix, Matrix]:
    """A and B as they are multiplied. Raises UserError unless A has as many columns as B has rows."""
    left, right = matrix(a, "A"), matrix(b, "B")
    left, right = (left.transposed if transpose_a else left), (right.transposed if transpose_b else right)
    if left.columns != right.rows:
        raise UserError(
            f"A is {left.rows} x {left.columns} and B is {right.rows} x {right.columns}; A needs as many columns as "
            "B has rows. Pass transpose_a or transpose_b if they are stored transposed."
        )
    return left, right


def _target(c: Any, a: Matrix, b: Matrix) -> Matrix:
    """C as it is written. Raises UserError if it is not as large as the product, or shares memory with a factor."""
    into = matrix(c, "C", written=True)
    if (into.rows, into.columns) != (a.rows, b.columns):
        raise UserError(f"C is {into.rows} x {into.columns}; pass one of {a.rows} x {b.columns}, as the product is.")
    for name, one in (("A", a), ("B", b)):
        if into.overlaps(one):
            raise UserError(f"C shares memory with {name}, which would change while it is read; pass another C.")
    return into


def _multiply(
    a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], loosened: int, path: Path, stream: int
) -> Plan:
    """Launch the products of all stretches of k; how the last one was made."""
    import cupy
    from cuda.core import Stream

    device = _device(a, b, c)
    alpha, beta = scalars
    k = a.columns if alpha != 0.0 else 0  # BLAS does not read A and B then
    cupy_stream = cupy.cuda.ExternalStream(stream) if stream else cupy.cuda.Stream.null
    legacy = 1  # CU_STREAM_LEGACY: the default stream by a handle that is not zero
    with cupy.cuda.Device(device), cupy_stream:
        _refuse_capture(cupy_stream)
        loaded = program(path, device)
        queue = Stream.from_handle(stream or legacy)
        plan = Plan(0, 0, 0)
        if k == 0:
            library.scale(c, beta)
        for start in range(0, k, decided.LONGEST_K):
            stop = min(k, start + decided.LONGEST_K)
            part = Factors(a.from_column(start, stop), b.from_row(start, stop), c, alpha, beta, loosened)
            beta = 1.0
            if c.rows * c.columns * (stop - start) < SMALL:
                library.multiply(part.a, part.b, c, alpha, part.beta)
                plan = Plan(0, 0, part.tiles)
            else:
                plan = loaded.run(part, loaded.workspace(part), queue, cupy_stream)
    return plan


def _refuse_capture(stream: Any) -> None:
    """Raise UserError if a CUDA graph is being captured: the host waits for the device, which ends the capture."""
    try:
        capturing = stream.is_capturing()
    except RuntimeError:  # CUDA's answer for the default stream while another one is captured
        capturing = True
    if capturing:
        raise UserError("a CUDA graph is being captured, and dgemm waits for the GPU; call it outside of the capture.")


def _device(*matrices: Matrix) -> int:
    """The GPU that holds them all. Raises UserError if there are several."""
    import cupy

    found = {cupy.cuda.runtime.pointerGetAttributes(one.pointer).device for one in matrices if one.rows * one.columns}
    if min(found) < 0:  # cudaInvalidDeviceId, of memory that no GPU knows
        raise UserError("A, B or C is at an address that is no GPU's; pass arrays that are on a GPU.")
    if len(found) > 1:
        raise UserError(f"A, B and C are on GPUs {', '.join(map(str, sorted(found)))}; move them to one.")
    return int(found.pop())


def _empty(like: Any, rows: int, columns: int) -> Any:
    """An array [rows, columns] of the library of `like`, on its GPU; CuPy's of any other library."""
    if library_of(like) == "torch":
        return like.new_empty((rows, columns))
    import cupy

    with cupy.cuda.Device(getattr(getattr(like, "device", None), "id", None)):
        return cupy.empty((rows, columns))


def _common_stream(a: Any, b: Any, c: Any) -> int:
    """The current stream of A's library. Raises UserError if it is not that of the others: none would wait for it."""
    stream = _stream(a)
    for name, other in (("B", b), ("C", c)):
        if library_of(other) != library_of(a) and _stream(other) != stream:
            raise UserError(
                f"A is of {library_of(a)} and {name} of {library_of(other)}, whose current streams differ; convert one "
                "with torch.from_dlpack or cupy.from_dlpack, which copies nothing."
            )
    return stream


def _stream(array: Any) -> int:
    """The current stream of the library of `array`, as the driver's handle."""
    if library_of(array) == "torch":
        import torch

        return int(torch.cuda.current_stream(array.device).cuda_stream)
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
