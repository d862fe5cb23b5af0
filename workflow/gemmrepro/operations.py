"""Operations: what a kernel computes, its arrays, its amount of work, and the memory that a check needs.

To add an operation, write an `Operation` record in OPERATIONS and a gate in `gemmrepro.gates.operations`; no other
module of the library tests for an operation's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gemmrepro.core.dtypes import DTYPES, draw_ids, draw_normal, draw_ring, draw_scaled, draw_words
from gemmrepro.errors import UserError

ROW_MAJOR, K_MAJOR_B, M_MAJOR_A = LAYOUTS = ("row,row,row", "row,col,row", "col,row,row")
"""Layouts of A[m,k], B[k,n] and C[m,n]. A column-major B is stored as [n, k] with k contiguous ("K-major"), a
column-major A as [k, m] with m contiguous ("M-major")."""

VECTOR_ELEMENTS = 1 << 20
"""Length of a vector addition, whatever the configured size."""

COPY_ELEMENTS = 1 << 26
"""16-byte elements of the copy ceiling at size 1."""

STREAM_CHUNK = 8192
"""Words that a block of a bandwidth probe reads; see the operation `stream`."""

LINK_WORDS = 32
"""32-bit words from one link of a latency probe to the next, by default: a line of 128 bytes."""

RECURRENCE = (1664525, 1013904223)
"""Multiplier and increment of the chain x -> a x + c modulo 2^32 (Numerical Recipes, section 7.1)."""

PROBE_RESULTS = 3
"""Results of a latency probe: where its chain ended, the SM's cycles, and nanoseconds."""

HISTOGRAM_BINS = 256

SCALED_BLOCK = 128
"""Elements of K, and columns of B, that share a scale."""

REFERENCE_ROWS = 1024
"""The float64 reference is computed in blocks of this many rows of C."""


@dataclass(frozen=True)
class Shape:
    """The size of a problem: C[m,n] = A[m,k] B[k,n]. Vectors of length n have m = k = 1; a histogram has k bins."""

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
    """The computation of a kernel or a library: an operation on operands of these types in this layout."""

    op: str = "gemm"
    dtype_in: str = "fp32"
    dtype_out: str = "fp32"
    layout: str = ROW_MAJOR

    def __str__(self) -> str:
        return f"{self.op} {self.dtype_in}"

    @property
    def operation(self) -> Operation:
        """The record of operation `op`. Raises UserError if there is none."""
        return operation(self.op)

    def dtype_of(self, operand: str) -> str:
        """The type of an operand: `dtype_out` of ``c``, an input's own or `dtype_in`. Raises UserError for another."""
        if operand == "c":
            return self.dtype_out
        for each in self.operation.inputs:
            if each.name == operand:
                return each.dtype or self.dtype_in
        raise UserError(f"the operation {self.op} has no operand '{operand}'.")

    @property
    def b_is_k_major(self) -> bool:
        """Whether B is stored as [n, k], its columns contiguous along k."""
        return self.layout == K_MAJOR_B

    @property
    def a_is_m_major(self) -> bool:
        """Whether A is stored as [k, m], its columns contiguous along m."""
        return self.layout == M_MAJOR_A


@dataclass(frozen=True)
class Input:
    """An input of an operation: its name among a kernel's arguments, and its type if that is not `Problem.dtype_in`."""

    name: str
    dtype: str = ""


@dataclass(frozen=True)
class Arrays:
    """Shapes of the inputs and of the output as stored; the last axis is contiguous."""

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]


Work = tuple[float | None, float | None]
"""FLOP of one launch with beta = 0 (an FMA counts as two), and the least bytes of device memory that it moves: each
input read once, each output written once. None where a number is meaningless."""


def _vector(n: int) -> Shape:
    return Shape(1, n, 1)


@dataclass(frozen=True)
class Operation:
    """One operation: everything but how results are judged, which is in `gates`.

    Attributes:
        arguments: default C signature; see `Call.arguments`. An int is passed as itself (int32).
        arrays: shapes of the inputs and the output as stored.
        inputs: the inputs in the order of `arrays`, which may have fewer.
        shape_of: the shape that a configured size stands for.
        work: of one launch of a kernel, given by its record.
        check_bytes: device memory that a check on the GPU needs in addition to the operands.
        draw: random inputs for a seed, made with an array module (NumPy or CuPy).
        axes: axes of the shape that arrays a, b and c span, in order (``{"a": "mk"}``); empty if they span none.
        n_bits: width of the argument n.
        tails: a shape of several tiles plus a remainder, in multiples of `Accepts.multiple_of`.
        layouts: allowed values of a kernel's layout; empty if any is allowed.
        matrix_product: whether it is C = alpha A B + beta C.
        ladder: whether kernels with a baseline are rungs, each compared with the previous one.
        ceiling: the rate ("tflops", "gbps") whose ceiling its kernels measure, or empty.
        swept: whether a sweep can check and time it; if not, only experiments run its kernels.
    """

    name: str
    arguments: tuple[str | int, ...]
    arrays: Callable[[Problem, Shape], Arrays]
    inputs: tuple[Input, ...] = (Input("a"), Input("b"))
    shape_of: Callable[[int], Shape] = _vector
    work: Callable[[Problem, Shape, Any], Work] = lambda problem, shape, kernel: (None, float(nbytes(problem, shape)))
    check_bytes: Callable[[Problem, Shape], int] = lambda problem, shape: nbytes(problem, shape)
    draw: Callable[[Problem, Shape, int, Any], list[Any]] = lambda problem, shape, seed, xp: draw_normal(
        counts(problem, shape)[0], problem.dtype_in, seed, xp
    )
    axes: Callable[[Problem], Mapping[str, str]] = lambda problem: {}
    n_bits: int = 32
    tails: Shape = Shape(1, 100_003, 1)
    layouts: tuple[str, ...] = ()
    matrix_product: bool = False
    ladder: bool = False
    ceiling: str = ""
    swept: bool = True


def _gemm_axes(problem: Problem) -> Mapping[str, str]:
    return {"a": "km" if problem.a_is_m_major else "mk", "b": "nk" if problem.b_is_k_major else "kn", "c": "mn"}


def _gemm_arrays(problem: Problem, shape: Shape) -> Arrays:
    a, b, c = (tuple(getattr(shape, axis) for axis in axes) for axes in _gemm_axes(problem).values())
    return Arrays((a, b), c)


def _epilogue_arrays(problem: Problem, shape: Shape) -> Arrays:
    product = _gemm_arrays(problem, shape)
    return Arrays((*product.inputs, product.output, (shape.n,)), product.output)


def _scaled_arrays(problem: Problem, shape: Shape) -> Arrays:
    """As cublasLt lays scales out: of A [ceil(k / 128), m]; of B [ceil(n / 128), ceil(k / 128) to a multiple of 4]."""
    m, n, k = shape.m, shape.n, shape.k
    depth, columns = math.ceil(k / SCALED_BLOCK), math.ceil(n / SCALED_BLOCK)
    return Arrays(((m, k), (n, k), (depth, m), (columns, math.ceil(depth / 4) * 4)), (m, n))


def _gemm_work(problem: Problem, shape: Shape, kernel: Any) -> Work:
    return 2.0 * shape.m * shape.n * shape.k, float(nbytes(problem, shape))


def _gemm_check_bytes(problem: Problem, shape: Shape) -> int:
    """All of C* and its scale, two copies of B, and the current block of rows; all in float64."""
    block = min(shape.m, REFERENCE_ROWS)
    return 16 * shape.m * shape.n + 16 * shape.k * shape.n + block * (16 * shape.k + 64 * shape.n)


def _loop_work(problem: Problem, shape: Shape, kernel: Any) -> Work:
    """FLOP of a loop. Its record counts FLOP per block and iteration, or FMAs per thread and iteration."""
    launch, params = kernel.launch(shape), kernel.params
    blocks, iterations = math.prod(launch.grid), params["iterations"]
    if per_block := params.get("flops_per_block_iteration"):
        return float(blocks * iterations * per_block), None
    return 2.0 * blocks * math.prod(launch.block) * iterations * params["ffma_per_iteration"], None


def _same_length(inputs: int, factor: int = 1) -> Callable[[Problem, Shape], Arrays]:
    """`inputs` inputs and one output, each of m n `factor` elements."""

    def arrays(problem: Problem, shape: Shape) -> Arrays:
        length = (factor * shape.m * shape.n,)
        return Arrays((length,) * inputs, length)

    return arrays


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        record.name: record
        for record in (
            Operation(
                "gemm",
                ("m", "n", "k", "alpha", "a", "b", "beta", "c"),
                _gemm_arrays,
                shape_of=Shape.cube,
                work=_gemm_work,
                check_bytes=_gemm_check_bytes,
                axes=_gemm_axes,
                tails=Shape(300, 51, 65),
                layouts=LAYOUTS,
                matrix_product=True,
                ladder=True,
            ),
            Operation(  # D = GELU(alpha A B + beta C + bias), one bias a column
                "gemm_epilogue",
                ("m", "n", "k", "alpha", "a", "b", "beta", "c0", "bias", "c"),
                _epilogue_arrays,
                inputs=(Input("a"), Input("b"), Input("c0"), Input("bias")),
                shape_of=Shape.cube,
                work=_gemm_work,
                check_bytes=_gemm_check_bytes,
                axes=_gemm_axes,
                tails=Shape(300, 51, 65),
                layouts=LAYOUTS,
                swept=False,  # a sweep passes no beta
            ),
            Operation(
                "gemm_scaled",
                ("a", "b", "scale_a", "scale_b", "c", "m", "n", "k"),
                _scaled_arrays,
                inputs=(Input("a"), Input("b"), Input("scale_a", "fp32"), Input("scale_b", "fp32")),
                shape_of=Shape.cube,
                work=_gemm_work,
                check_bytes=lambda problem, shape: _gemm_check_bytes(problem, shape) + 24 * shape.m * shape.k,
                draw=lambda problem, shape, seed, xp: draw_scaled(
                    (shape.m, shape.n, shape.k), problem.dtype_in, seed, xp
                ),
                axes=lambda problem: {"a": "mk", "b": "nk", "c": "mn"},
                tails=Shape(300, 51, 65),
                layouts=(K_MAJOR_B,),
                matrix_product=True,
                ladder=True,
            ),
            Operation(
                "vector_add",
                ("n", "a", "b", "c"),
                _same_length(2),
                shape_of=lambda size: _vector(VECTOR_ELEMENTS),  # whatever the size
                axes=lambda problem: {"a": "n", "b": "n", "c": "n"},
            ),
            Operation(
                "vector_add_in_place",
                ("n", "a", "c"),
                _same_length(1),
                shape_of=lambda size: _vector(VECTOR_ELEMENTS),  # whatever the size
                work=lambda problem, shape, kernel: (None, 1.5 * nbytes(problem, shape)),  # y is read as well
                axes=lambda problem: {"a": "n", "c": "n"},
                swept=False,  # each launch changes its own input
            ),
            Operation(
                "recurrence",
                ("n", "k", RECURRENCE[0], RECURRENCE[1], "c"),
                lambda problem, shape: Arrays((), (PROBE_RESULTS,)),
                work=lambda problem, shape, kernel: (None, None),
                check_bytes=lambda problem, shape: 0,
                tails=Shape(1, 12345, 3),
                swept=False,
            ),
            Operation(
                "walk",
                ("a", "n", "k", "c"),
                lambda problem, shape: Arrays(((shape.n,),), (PROBE_RESULTS,)),
                work=lambda problem, shape, kernel: (None, None),
                draw=lambda problem, shape, seed, xp: [draw_ring(shape.n, LINK_WORDS, seed, xp)],
                tails=Shape(1, 4096, 3),
                swept=False,
            ),
            Operation(
                "stream",
                ("a", "n", "k", "c"),
                lambda problem, shape: Arrays(((shape.n,),), (max(1, shape.n // STREAM_CHUNK) * shape.k,)),
                work=lambda problem, shape, kernel: (None, 4.0 * shape.n * shape.k),
                draw=lambda problem, shape, seed, xp: [draw_words(shape.n, seed, xp)],
                tails=Shape(1, 3, 2),
                swept=False,
            ),
            Operation("copy", ("a", "c", "m", "n"), _same_length(1), shape_of=lambda size: Shape(size, size, 1)),
            Operation("gelu", ("n", "a", "c"), _same_length(1)),
            Operation(
                "ceiling_flops",
                ("c", "iterations", "alpha", "beta"),
                lambda problem, shape: Arrays((), (1,)),  # the size scales the registered grid
                work=_loop_work,
                check_bytes=lambda problem, shape: 0,
                ceiling="tflops",
            ),
            Operation(
                "ceiling_bytes",
                ("a", "c", "n"),
                _same_length(1, factor=4),  # n elements of 16 bytes, 1 GiB read and 1 GiB written at size 1
                shape_of=lambda size: _vector(size * COPY_ELEMENTS),
                n_bits=64,
                ceiling="gbps",
            ),
            Operation("vector_copy", ("a", "c", "n"), _same_length(1), n_bits=64),
            Operation("whole_copy", ("a", "c", "n"), _same_length(1), n_bits=64, tails=Shape(1, 784, 1), swept=False),
            Operation("reduce", ("a", "n", "c"), lambda problem, shape: Arrays(((shape.n,),), (1,)), n_bits=64),
            Operation(
                "histogram",
                ("a", "n", "k", "c"),
                lambda problem, shape: Arrays(((shape.n,),), (shape.k + 1,)),
                shape_of=lambda size: Shape(1, size, HISTOGRAM_BINS),
                check_bytes=lambda problem, shape: 3 * nbytes(problem, shape),  # ids as 64 bits, once more than the ids
                draw=lambda problem, shape, seed, xp: [draw_ids("uniform", shape.n, shape.k, seed, xp)],
                n_bits=64,
            ),
        )
    }
)


def operation(name: str) -> Operation:
    """The operation called `name`. Raises UserError if there is none."""
    if name not in OPERATIONS:
        raise UserError(
            f"there is no operation '{name}'; known operations: {', '.join(OPERATIONS)}. A new one is a record in "
            "gemmrepro.operations and a gate in gemmrepro.gates.operations."
        )
    return OPERATIONS[name]


def shape_of(op: str, size: int) -> Shape:
    """The shape that a configured `size` means for operation `op`: m = n = k of a GEMM, elements of a vector."""
    return operation(op).shape_of(size)


def counts(problem: Problem, shape: Shape) -> tuple[tuple[int, ...], int]:
    """Number of elements of each input, and of the output, of `problem` on `shape`."""
    arrays = problem.operation.arrays(problem, shape)
    return tuple(math.prod(lengths) for lengths in arrays.inputs), math.prod(arrays.output)


def input_bytes(problem: Problem, shape: Shape) -> int:
    """Total bytes of the inputs."""
    inputs, _ = counts(problem, shape)
    named = zip(problem.operation.inputs, inputs, strict=False)  # an operation may have fewer inputs than names
    return sum(DTYPES[problem.dtype_of(each.name)] * count for each, count in named)


def nbytes(problem: Problem, shape: Shape) -> int:
    """Total bytes of the inputs and the output."""
    return input_bytes(problem, shape) + DTYPES[problem.dtype_out] * counts(problem, shape)[1]
