"""Operations: what a kernel computes, on which arrays, and how much work that is."""

from __future__ import annotations

from dataclasses import dataclass

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.errors import UserError

ARGUMENTS = {
    "gemm": ("m", "n", "k", "alpha", "a", "b", "beta", "c"),
    "vector_add": ("n", "a", "b", "c"),
    "copy": ("a", "c", "m", "n"),
    "gelu": ("n", "a", "c"),
    "ceiling_flops": ("c", "iterations", "alpha", "beta"),
    "ceiling_bytes": ("a", "c", "n"),
    "vector_copy": ("a", "c", "n"),
    "reduce": ("a", "n", "c"),
    "histogram": ("a", "n", "k", "c"),
}
"""An operation's usual C signature; see `Kernel.arguments`."""

LAYOUTS = ("row,row,row", "row,col,row")
"""Of A[m,k], B[k,n] and C[m,n]. A column-major B is stored as [n, k] with k contiguous ("K-major")."""


@dataclass(frozen=True)
class Shape:
    """A problem: C[m,n] = A[m,k] B[k,n]. A vector operation of length n has m = k = 1; a histogram has k bins."""

    m: int
    n: int
    k: int

    @classmethod
    def cube(cls, n: int) -> Shape:
        return cls(n, n, n)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Problem:
    """What is computed, whatever computes it: an operation on operands of these types, laid out so."""

    op: str = "gemm"
    dtype_in: str = "fp32"
    dtype_out: str = "fp32"
    layout: str = "row,row,row"

    def __str__(self) -> str:
        return f"{self.op} {self.dtype_in}"


VECTOR_ELEMENTS = 1 << 20
COPY_ELEMENTS = 1 << 26
HISTOGRAM_BINS = 256

VECTORS = ("vector_copy", "reduce", "histogram")
"""Operations on vectors whose size is a number of elements; their kernels take n as 64 bits."""


def shape_of(op: str, size: int) -> Shape:
    """The problem of operation `op` that `size` stands for.

    m = n = k for GEMM; a matrix of m = n to copy; 2^20 elements, whatever the size, for vector addition; size x 2^26
    elements of 16 bytes (1 GiB read and 1 GiB written at size 1) for the copy ceiling; size x the registered grid for
    the arithmetic ceilings; `size` elements to copy, to sum up, or to count in 256 bins.
    """
    if op == "gemm":
        return Shape.cube(size)
    if op == "copy":
        return Shape(size, size, 1)
    if op == "vector_add":
        return Shape(1, VECTOR_ELEMENTS, 1)
    if op == "ceiling_bytes":
        return Shape(1, size * COPY_ELEMENTS, 1)
    if op == "histogram":
        return Shape(1, size, HISTOGRAM_BINS)
    return Shape(1, size, 1)


def matrices(problem: Problem, shape: Shape) -> tuple[tuple[tuple[int, int], ...], tuple[int, int]]:
    """Stored (rows, columns) of a GEMM's inputs A and B, and of its output C. Columns are contiguous."""
    b = (shape.n, shape.k) if problem.layout == "row,col,row" else (shape.k, shape.n)
    return ((shape.m, shape.k), b), (shape.m, shape.n)


def counts(problem: Problem, shape: Shape) -> tuple[tuple[int, ...], int]:
    """How many elements each input and the output of `problem` hold on `shape`."""
    if problem.op == "gemm":
        inputs, output = matrices(problem, shape)
        return tuple(rows * columns for rows, columns in inputs), output[0] * output[1]
    if problem.op == "vector_add":
        return (shape.n, shape.n), shape.n
    if problem.op == "copy":
        return (shape.m * shape.n,), shape.m * shape.n
    if problem.op == "vector_copy":
        return (shape.n,), shape.n
    if problem.op == "reduce":
        return (shape.n,), 1
    if problem.op == "histogram":
        return (shape.n,), shape.k + 1
    if problem.op == "gelu":
        return (shape.n,), shape.n
    if problem.op == "ceiling_bytes":
        return (4 * shape.n,), 4 * shape.n
    if problem.op == "ceiling_flops":
        return (), 1
    raise UserError(f"the arrays of operation '{problem.op}' are not defined; add them to gemmrepro.operands.counts.")


def nbytes(problem: Problem, shape: Shape) -> int:
    """Bytes of the inputs and the output together."""
    inputs, output = counts(problem, shape)
    return DTYPES[problem.dtype_in] * sum(inputs) + DTYPES[problem.dtype_out] * output
