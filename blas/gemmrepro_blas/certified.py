"""`dgemm`: a product in double on Hopper's INT8 tensor cores, with a bound for every element.

The bound holds for any input: the device looks at the numbers, takes as many Chinese remainders as the bound needs, and
multiplies in double where they would not do (`ozaki.decided`; `kernels/crt/NOTES.md` has the proof). Where none of it
would gain, cuBLAS's DGEMM multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any

from gemmrepro_blas import library
from gemmrepro_blas.calls import (
    check_rest,
    common_stream,
    empty,
    fresh,
    multipliable,
    on_gpu,
    operands,
    real_scalar,
    stream_of,
    target,
)
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import Matrix, matrix
from gemmrepro_blas.program import Factors, Held, Plan, program
from gemmrepro_blas.table import kernel, table, tiles, usable

ACCURACIES = ("sqrt", "worst")
LOOSEST = 40
WAITS = "dgemm waits for the GPU"
"""Why no CUDA graph can hold it."""

SMALL = 2**33
"""Multiply-adds below which cuBLAS multiplies at once: looking at the numbers would take longer."""

USUAL = 14
"""Moduli of numbers of like size."""
AROUND = 6.5e-6
"""Microseconds of a call on an H200 for each element of A, B and C, beside what the device's own model counts: 5.1 to
7.0 millionths from 3008 x 5008 x 2000 to 65536 x 1024 x 1024. Shared tiles, of longer K, make up for it."""
MOST_TILES = 2**16 - 1
"""Rows and columns of tiles that a list of the device can name."""


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
    """A factor of many products, as `prepare` returns it; `dgemm` takes it in place of the array, in any thread.

    Attributes:
        matrix: the factor as it is multiplied.
        name: "A" or "B".
        stretches: what is held of each stretch of k, by its first k.
    """

    matrix: Matrix
    name: str
    stretches: dict[int, Held]


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
    path, stream = usable(table()["dgemm"], binary), stream_of(x)
    made = Prepared(one, name, {})
    if not one.rows * one.columns:
        return made
    with on_gpu(stream, WAITS, one) as device:
        loaded = program(path, device)
        k = one.columns if name == "A" else one.rows
        for start, stop in _stretches(k):
            part = one.from_column(start, stop) if name == "A" else one.from_row(start, stop)
            made.stretches[start] = loaded.held(SIDES[name], part, stream)
    return made


def _stretches(k: int) -> list[tuple[int, int]]:
    """First and last but one of the k that are multiplied together."""
    longest = kernel(table()["dgemm"]).longest_k
    return [(start, min(k, start + longest)) for start in range(0, k, longest)]


def gamma(k: int, loosened: int = 0) -> float:
    """2 sqrt(k) u, times 2^loosened: the bound that tiles of residues keep."""
    return math.ldexp(2.0 * math.sqrt(k), loosened - 53)


@lru_cache(maxsize=256)
def pays(m: int, n: int, k: int) -> bool:
    """Whether residues may be faster than cuBLAS for a product of this shape, if the numbers are of like size."""
    height, width = table()["tile"]
    if m * n * k < SMALL or m > height * MOST_TILES or n > width * MOST_TILES:
        return False
    times, elements = table()["microseconds"], m * k + k * n + m * n
    around = AROUND if k < kernel(table()["dgemm"]).params["long"] else 0.0
    work = 2.0 * m * n * k
    by_residues = USUAL * work * times["operation_8_bit"] + elements * ((USUAL + 8) * times["byte"] + around)
    return bool(by_residues < work * times["operation_double"])


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
    return max(-LOOSEST, min(LOOSEST, math.floor(math.log2(wanted / gamma(k)))))


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
    workspace: int | None = None,
    binary: str | Path | None = None,
) -> Any:
    """C = alpha A B + beta C in float64, on the current stream of CuPy or PyTorch.

    It waits until the device has decided, so no CUDA graph can capture it, and returns before the product is there.

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
        workspace: bytes beside A, B and C that it may use at a time; C is made in blocks, with the same bits, where it
            needs more. By default as many as it needs: 1 (m k + k n), then 13 to 16 (m k + k n + m n).
        binary: the fat binary of crt.first_wave; by default the build stage's.

    Raises:
        UserError: operands that do not fit, overlap C, are not float64 or not on a Hopper GPU; scalars that are no real
            numbers; libraries whose streams differ, or a captured one; no binary of today's sources; too little memory
            or workspace; what was prepared as the other factor, or for a C by rows.
    """
    prepared = a if isinstance(a, Prepared) else b if isinstance(b, Prepared) else None
    into: Matrix | None
    if prepared is None:
        left, right, into = operands(a, b, c, (bool(transpose_a), bool(transpose_b)))
    else:
        left, right, into = _with_prepared(a, b, c, (transpose_a, transpose_b))
        a, b = left.owner, right.owner
    scalars = real_scalar(alpha, "alpha"), real_scalar(beta, "beta")
    check_rest(c, scalars[1], workspace)
    if binary is not None:
        usable(table()["dgemm"], binary)
    k = left.columns
    loosened = loosening(accuracy, k) if k else 0
    out = c if c is not None else empty(a, left, right)
    if into is None:
        into = fresh(out, left, right)
    plan = Plan(0, 0, 0)
    if into.rows and into.columns:
        factors = Factors(left, right, into, scalars[0], scalars[1], loosened, a, workspace)
        plan = _multiply(factors, binary, common_stream(a, b, out), prepared)
    if not details:
        return out
    return out, Details(plan.moduli, plan.tiles, plan.native_tiles, gamma(max(k, 1), loosened))


def _with_prepared(a: Any, b: Any, c: Any, turned: tuple[bool, bool]) -> tuple[Matrix, Matrix, Matrix | None]:
    """`operands` where one factor is prepared. Raises UserError if it was prepared for something else."""
    if isinstance(a, Prepared) and isinstance(b, Prepared):
        raise UserError("A and B are both prepared, each as if the other were not; pass one of them as an array.")
    left, right = multipliable(_factor(a, "A", turned[0]), _factor(b, "B", turned[1]))
    into = None if c is None else target(c, left, right)
    if into is not None and into.by_columns:
        name = "A" if isinstance(a, Prepared) else "B"
        raise UserError(f"C lies by columns and {name} was prepared for a C by rows; pass one, or leave c out.")
    return left, right, into


def _factor(x: Any, name: str, transpose: bool) -> Matrix:
    if not isinstance(x, Prepared):
        one = matrix(x, name)
        return one.transposed if transpose else one
    if x.name != name:
        raise UserError(f"what is passed as {name} was prepared as {x.name}; prepare it with name={name!r}.")
    if transpose:
        raise UserError(f"{name} is prepared as it is multiplied; give prepare the transpose instead.")
    return x.matrix


def _multiply(factors: Factors, binary: str | Path | None, stream: int, prepared: Prepared | None) -> Plan:
    """Launch the products of all stretches of k; how the last one was made."""
    a, b, c, plan = factors.a, factors.b, factors.c, Plan(0, 0, 0)
    k = a.columns if factors.alpha != 0.0 else 0  # BLAS does not read A and B then
    with on_gpu(stream, WAITS, a, b, c) as device:
        if k == 0:
            library.scale(c, factors.beta, stream)
            return plan
        if not pays(c.rows, c.columns, k):
            library.multiply(a, b, c, (factors.alpha, factors.beta), stream)
            return Plan(0, 0, tiles(c.rows, c.columns))
        loaded, stretches = program(usable(table()["dgemm"], binary), device), _stretches(k)
        if len(stretches) == 1:
            return loaded.run(factors, stream, prepared.stretches[0] if prepared is not None else None)
        for start, stop in stretches:
            part = replace(factors, a=a.from_column(start, stop), b=b.from_row(start, stop))
            if pays(c.rows, c.columns, stop - start):
                plan = loaded.run(part, stream, prepared.stretches[start] if prepared is not None else None)
            else:
                library.multiply(part.a, part.b, c, (part.alpha, part.beta), stream)
                plan = Plan(0, 0, tiles(c.rows, c.columns))
            factors = replace(factors, beta=1.0)
    return plan
