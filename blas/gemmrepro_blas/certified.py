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

from gemmrepro.errors import UserError
from gemmrepro.ozaki import decided
from gemmrepro_blas import library
from gemmrepro_blas.calls import common_stream, empty, multipliable, on_stream, real_scalar, stream_of, target
from gemmrepro_blas.matrices import Matrix, matrix
from gemmrepro_blas.program import Factors, Held, Plan, program, usable

ACCURACIES = ("sqrt", "worst")
LOOSEST = 40
WAITS = "dgemm waits for the GPU"
"""Why no CUDA graph can hold it."""

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


SIDES = {"A": "a", "B": "b"}


@dataclass
class Prepared:
    """A factor of many products, as `prepare` returns it; `dgemm` takes it in place of the array.

    Attributes:
        matrix: the factor as it is multiplied.
        name: "A" or "B".
        stretches: what is held of each stretch of k, by its first k.
        device: its GPU.
        ready: the event after the last launch that wrote any of it.
    """

    matrix: Matrix
    name: str
    stretches: dict[int, Held]
    device: int
    ready: Any

    @property
    def arrays(self) -> int:
        """Arrays of residues that it holds; none changes once it is written."""
        return sum(len(held.residues) for held in self.stretches.values())


def prepare(x: Any, *, name: str = "B", transpose: bool = False, binary: str | Path | None = None) -> Prepared:
    """What `dgemm` needs of a factor beside its elements, for products that share it, on the current stream.

    It holds the norms, sums and bytes of B's columns or A's rows, a byte an element, and from the first product on
    residues, 13 to 16 bytes an element; products that take another number of moduli add theirs. The powers of two
    along k follow from this factor alone, as if the other one's elements were of like size: bounds hold as ever, but
    A D and D^-1 B may take more moduli, or double.

    Args:
        x: the factor, as `dgemm` takes it. It must not change while it is in use here: prepare it again then.
        name: "A" or "B", which of the two it will be.
        transpose: prepare its transpose.
        binary: as in `dgemm`, and the same.

    Raises:
        UserError: as `dgemm`, of one factor.
    """
    if name not in SIDES:
        raise UserError(f"name is {name!r}; choose 'A' or 'B', which of the factors it will be.")
    one = matrix(x, name)
    one = one.transposed if transpose else one
    path, stream = usable(binary), stream_of(x)
    made = Prepared(one, name, {}, -1, None)
    if not one.rows * one.columns:
        return made
    with on_stream(stream, WAITS, one) as (device, queue, cupy_stream):
        loaded = program(path, device)
        made.device = device
        k = one.columns if name == "A" else one.rows
        for start in range(0, k, decided.LONGEST_K):
            stop = min(k, start + decided.LONGEST_K)
            part = one.from_column(start, stop) if name == "A" else one.from_row(start, stop)
            made.stretches[start] = loaded.held(SIDES[name], part, queue)
        made.ready = cupy_stream.record()
    return made


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
            or columns are contiguous. One of them may be what `prepare` made of it.
        c: C [m,n], overwritten and returned; by default a new array of A's library. Needed if `beta` is not 0.
        transpose_a, transpose_b: take the transpose of A or B.
        accuracy: gamma. "sqrt": 2 sqrt(k) u, about what a DGEMM's roundings amount to. "worst": k u, the bound that any
            DGEMM has; it takes fewer moduli. Or a number: below k u, elements that are multiplied in double keep k u.
        details: return (C, Details) instead.
        binary: the fat binary of crt.first_wave; by default the build stage's.

    Raises:
        UserError: operands that do not fit, overlap C, are not on a Hopper GPU or not float64; scalars that are no real
            numbers; arrays of libraries whose current streams differ; a stream that is being captured; no binary, or
            one of other sources; too little memory; what was prepared as the other factor, or for a C by rows.
    """
    left, right = _factors(a, b, transpose_a, transpose_b)
    prepared = next((each for each in (a, b) if isinstance(each, Prepared)), None)
    a, b = (each.matrix.owner if isinstance(each, Prepared) else each for each in (a, b))
    scalars = real_scalar(alpha, "alpha"), real_scalar(beta, "beta")
    if c is None and scalars[1] != 0.0:
        raise UserError(f"beta is {beta}, but there is no C to multiply by it; pass c, or leave beta out.")
    k = left.columns
    loosened = loosening(accuracy, max(k, 1))
    out = c if c is not None else empty(a, left.rows, right.columns)
    left, right, into = _by_rows(left, right, target(out, left, right), prepared)
    plan = Plan(0, 0, 0)
    if into.rows and into.columns:
        path, stream = usable(binary), common_stream(a, b, out)
        plan = _multiply(left, right, into, scalars, loosened, path, stream, prepared)
    how = Details(plan.moduli, plan.tiles, plan.native_tiles, decided.gamma(max(k, 1), loosened))
    return (out, how) if details else out


def _factors(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[Matrix, Matrix]:
    """A and B as they are multiplied. Raises UserError if they cannot be."""
    if isinstance(a, Prepared) and isinstance(b, Prepared):
        raise UserError("A and B are both prepared, each as if the other were not; pass one of them as an array.")
    left, right = _factor(a, "A", transpose_a), _factor(b, "B", transpose_b)
    return multipliable(left, right)


def _factor(x: Any, name: str, transpose: bool) -> Matrix:
    if not isinstance(x, Prepared):
        one = matrix(x, name)
        return one.transposed if transpose else one
    if x.name != name:
        raise UserError(f"what is passed as {name} was prepared as {x.name}; prepare it with name={name!r}.")
    if transpose:
        raise UserError(f"{name} is prepared as it is multiplied; give prepare the transpose instead.")
    return x.matrix


def _by_rows(a: Matrix, b: Matrix, c: Matrix, prepared: Prepared | None) -> tuple[Matrix, Matrix, Matrix]:
    """The product as one whose C lies by rows. Raises UserError if another factor was prepared than that takes."""
    if not c.by_columns:
        return a, b, c
    if prepared is not None:
        raise UserError(
            f"C lies by columns and {prepared.name} was prepared for a C by rows; pass one, or leave c out."
        )
    return b.transposed, a.transposed, c.transposed  # C^T = B^T A^T


def _multiply(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    scalars: tuple[float, float],
    loosened: int,
    path: Path,
    stream: int,
    prepared: Prepared | None,
) -> Plan:
    """Launch the products of all stretches of k; how the last one was made."""
    alpha, beta = scalars
    k = a.columns if alpha != 0.0 else 0  # BLAS does not read A and B then
    with on_stream(stream, WAITS, a, b, c) as (device, queue, cupy_stream):
        loaded = program(path, device)
        before = prepared.arrays if prepared is not None else 0
        if prepared is not None and prepared.ready is not None:
            cupy_stream.wait_event(prepared.ready)
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
                held = prepared.stretches[start] if prepared is not None else None
                plan = loaded.run(part, loaded.workspace(part, held), queue, cupy_stream, held)
        if prepared is not None and prepared.arrays > before:
            prepared.ready = cupy_stream.record()
    return plan
