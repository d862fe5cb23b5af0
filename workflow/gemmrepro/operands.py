"""The arrays and scalars of a launch: how each type is stored, what an operation takes, in which order it is passed.

CuPy has no bfloat16, so a bf16 array is held as its bits, in uint16. `narrow` and `widen` convert on either side, NumPy
or CuPy alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.errors import UserError
from gemmrepro.registry import DTYPES, Kernel, Problem, Shape, TensorMap

STORAGE = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}
"""How an element lies in memory, by dtype."""

_CUDA_DTYPES = {"fp32": "FLOAT32", "fp16": "FLOAT16", "bf16": "BFLOAT16"}


def bits(array: Any) -> Any:
    """`array` seen as unsigned integers of its element size."""
    return array.view(np.uint32 if array.dtype.itemsize == 4 else np.uint16)


def narrow(values: Any, dtype: str) -> Any:
    """float32 `values` rounded to nearest, ties to even, as stored elements of `dtype`. NaN stays NaN."""
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(STORAGE[dtype], copy=False)
    word = values.view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Rounding up would carry some NaNs into infinity; their upper half, made quiet, is kept instead.
    quiet = (word >> np.uint32(16)) | np.uint32(0x40)
    nan = (word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (rounded * ~nan + quiet * nan).astype(np.uint16)


def widen(array: Any, dtype: str) -> Any:
    """Stored elements of `dtype` as float64, exactly."""
    if dtype == "bf16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN, which becomes a quiet one
        return array.astype(np.float64)


VECTOR_ELEMENTS = 1 << 20
COPY_ELEMENTS = 1 << 26


def shape_of(op: str, size: int) -> Shape:
    """The problem of operation `op` that `size` stands for.

    m = n = k for GEMM; a matrix of m = n to copy; 2^20 elements, whatever the size, for vector addition; size x 2^26
    elements of 16 bytes (1 GiB read and 1 GiB written at size 1) for the copy ceiling; size x the registered grid for
    the arithmetic ceilings.
    """
    if op == "gemm":
        return Shape.cube(size)
    if op == "copy":
        return Shape(size, size, 1)
    if op == "vector_add":
        return Shape(1, VECTOR_ELEMENTS, 1)
    if op == "ceiling_bytes":
        return Shape(1, size * COPY_ELEMENTS, 1)
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
    if problem.op == "ceiling_bytes":
        return (4 * shape.n,), 4 * shape.n
    if problem.op == "ceiling_flops":
        return (), 1
    raise UserError(f"the arrays of operation '{problem.op}' are not defined; add them to gemmrepro.operands.counts.")


def nbytes(problem: Problem, shape: Shape) -> int:
    """Bytes of the inputs and the output together."""
    inputs, output = counts(problem, shape)
    return DTYPES[problem.dtype_in] * sum(inputs) + DTYPES[problem.dtype_out] * output


def work(kernel: Kernel, shape: Shape) -> tuple[float | None, float | None]:
    """Operations and compulsory bytes of one launch with beta = 0.

    Returns:
        (floating-point operations, an FMA counted as two; bytes of device memory that any implementation must move,
        each input read once and each output written once). None where the number says nothing about the operation.
    """
    if kernel.op == "gemm":
        return 2.0 * shape.m * shape.n * shape.k, float(nbytes(kernel.problem, shape))
    if kernel.op == "ceiling_flops":
        launch = kernel.launch(shape)
        if per_block := kernel.params.get("flops_per_block_iteration"):
            return float(math.prod(launch.grid) * kernel.params["iterations"] * per_block), None
        threads = math.prod(launch.grid) * math.prod(launch.block)
        return 2.0 * threads * kernel.params["iterations"] * kernel.params["ffma_per_iteration"], None
    return None, float(nbytes(kernel.problem, shape))


@dataclass(frozen=True)
class Operands:
    """Arrays (CuPy, C-contiguous, stored as STORAGE says) and scalars of one launch, by operation.

    gemm: inputs A[m,k] and B[k,n] in the problem's layout, output C[m,n]; alpha and beta as in BLAS.
    vector_add: inputs x[n], y[n], output z[n].
    copy: input and output matrices [m,n].
    ceiling_flops: output one float; `iterations` of the loop; alpha and beta are the loop's a and b.
    ceiling_bytes: input and output of shape.n elements of 16 bytes.
    """

    problem: Problem
    shape: Shape
    inputs: tuple[Any, ...]
    output: Any
    alpha: float = 1.0
    beta: float = 0.0
    iterations: int = 0

    @classmethod
    def of(cls, kernel: Kernel, shape: Shape, inputs: Sequence[Any], output: Any) -> Operands:
        """Operands with the scalars that `kernel` is timed with."""
        return cls(
            kernel.problem,
            shape,
            tuple(inputs),
            output,
            alpha=kernel.scalars.get("a", 1.0),
            beta=kernel.scalars.get("b", 0.0),
            iterations=int(kernel.params.get("iterations", 0)),
        )

    def arguments(self, kernel: Kernel) -> tuple[Any, ...]:
        """What `kernel` is launched with, in the order of its C signature.

        Raises:
            UserError: a tensor map that the driver refuses, or C = A B asked of scalars that it cannot apply.
        """
        if self.problem.op == "gemm" and not kernel.scales and (self.alpha, self.beta) != (1.0, 0.0):
            raise UserError(f"{kernel.id} computes C = A B and cannot take alpha = {self.alpha}, beta = {self.beta}.")
        arrays = self._arrays()
        index = np.int64 if self.problem.op == "ceiling_bytes" else np.int32
        scalars: dict[str, Any] = {axis: index(getattr(self.shape, axis)) for axis in "mnk"}
        scalars |= {"alpha": np.float32(self.alpha), "beta": np.float32(self.beta)}
        scalars |= {"iterations": np.int32(self.iterations)}

        def argument(name: str) -> Any:
            if name.startswith("map:"):
                operand = name.removeprefix("map:")
                return self.tensor_map(operand, kernel.tensor_maps[operand], kernel.id)
            return scalars[name] if name in scalars else arrays[name].data.ptr

        return tuple(argument(name) for name in kernel.arguments)

    def _arrays(self) -> dict[str, Any]:
        """The arrays by the names that arguments give them; an operation may have fewer inputs than two."""
        return {**dict(zip("ab", self.inputs, strict=False)), "c": self.output}

    def tensor_map(self, operand: str, wanted: TensorMap, who: str) -> Any:
        """The TMA descriptor of operand ``a``, ``b`` or ``c``; loads outside the matrix read zeros.

        Raises:
            UserError: the driver refuses it: a row of the matrix is no multiple of 16 bytes, or a box is too large.
        """
        # cuda.core encodes it with cuda.bindings' cuTensorMapEncodeTiled; its enumerations have no public name yet.
        from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
        from cuda.core.utils import StridedMemoryView

        inputs, output = matrices(self.problem, self.shape)
        rows_columns = {"a": inputs[0], "b": inputs[1], "c": output}[operand]
        dtype = self.problem.dtype_out if operand == "c" else self.problem.dtype_in
        array = self._arrays()[operand].reshape(rows_columns)
        try:
            return StridedMemoryView.from_any_interface(array, stream_ptr=-1).as_tensor_map(
                box_dim=wanted.box,
                data_type=getattr(TensorMapDataType, _CUDA_DTYPES[dtype]),
                swizzle=getattr(TensorMapSwizzle, f"SWIZZLE_{wanted.swizzle}B" if wanted.swizzle else "NONE"),
                l2_promotion=TensorMapL2Promotion.L2_256B,
            )
        except Exception as error:
            raise UserError(
                f"{who}: no tensor map of {operand.upper()} {rows_columns} {dtype} with tiles {wanted.box} can be made "
                f"({error}); TMA wants rows of whole 16 bytes and boxes of at most 256 elements a side."
            ) from None


Launcher = Callable[[Operands], None]
"""Launches something once on operands, on the current stream."""


def random(problem: Problem, shape: Shape, seed: int) -> tuple[list[Any], Any]:
    """Inputs with N(0, 1) elements and an output not yet written, on the GPU."""
    import cupy

    rng = cupy.random.default_rng(seed)
    inputs, output = counts(problem, shape)
    arrays = []
    for count in inputs:
        values = rng.standard_normal(count, dtype=cupy.float32)
        arrays.append(narrow(values, problem.dtype_in))
    return arrays, cupy.empty(output, dtype=STORAGE[problem.dtype_out])
