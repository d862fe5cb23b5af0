"""The arrays and scalars of a launch: how each type is stored, what an operation takes, in which order it is passed.

CuPy has neither bfloat16 nor 8-bit floats, so their arrays are held as bits, in unsigned integers. TF32 is fp32 whose
lower 13 bits are zero: whoever multiplies it need not round it. `narrow` and `widen` convert on either side, NumPy or
CuPy alike.

8-bit floats are those of the Open Compute Project (OCP 8-bit Floating Point Specification, revision 1.0), converted
without saturation: what rounds beyond the largest number becomes an infinity in e5m2, and NaN in e4m3, which has none.
Integers saturate, and NaN has no integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.errors import UserError
from gemmrepro.registry import DTYPES, Kernel, Problem, Shape, TensorMap

STORAGE = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": np.uint16,
    "tf32": np.float32,
    "fp64": np.float64,
    "fp8_e4m3": np.uint8,
    "fp8_e5m2": np.uint8,
    "int8": np.int8,
    "int32": np.int32,
}
"""How an element lies in memory, by dtype."""

INTEGERS = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
"""Least and greatest number of the integer types."""


@dataclass(frozen=True)
class Float8:
    """An 8-bit float: bits of its fraction, exponent bias, and the codes of its largest number, overflow and NaN."""

    fraction: int
    bias: int
    largest: int
    overflow: int
    nan: int


FLOAT8 = {"fp8_e4m3": Float8(3, 7, 0x7E, 0x7F, 0x7F), "fp8_e5m2": Float8(2, 15, 0x7B, 0x7C, 0x7F)}

SPREAD = {"int8": 32.0}
"""Standard deviation of random elements, by dtype; 1 where it says nothing."""

_CUDA_DTYPES = {"fp32": "FLOAT32", "fp16": "FLOAT16", "bf16": "BFLOAT16"}


def bits(array: Any) -> Any:
    """`array` seen as unsigned integers of its element size."""
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])


def narrow(values: Any, dtype: str) -> Any:
    """float32 `values` (float64 too, for fp64, fp32, fp16 and integers) rounded to nearest, ties to even, as stored
    elements of `dtype`; see the module's docstring for what is too large. NaN stays NaN.
    """
    if dtype in INTEGERS:
        low, high = INTEGERS[dtype]
        return values.round().clip(low, high).astype(STORAGE[dtype])
    if dtype in FLOAT8:
        return _narrow_to_8_bits(values, FLOAT8[dtype])
    if dtype == "tf32":
        word = values.view(np.uint32)
        finite = (word & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
        rounded = (word + np.uint32(0xFFF) + ((word >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
        # Some NaNs would lose all of their fraction: the lowest bit of it that TF32 keeps is set for them.
        special = (word & np.uint32(0xFFFFE000)) | (((word & np.uint32(0x7FFFFF)) != 0) * np.uint32(1 << 13))
        return (rounded * finite + special * ~finite).astype(np.uint32).view(np.float32)
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(STORAGE[dtype], copy=False)
    word = values.view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Rounding up would carry some NaNs into infinity; their upper half, made quiet, is kept instead.
    quiet = (word >> np.uint32(16)) | np.uint32(0x40)
    nan = (word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (rounded * ~nan + quiet * nan).astype(np.uint16)


def _narrow_to_8_bits(values: Any, kind: Float8) -> Any:
    word = values.view(np.uint32)
    sign, size = (word >> np.uint32(24)) & np.uint32(0x80), word & np.uint32(0x7FFFFFFF)
    dropped = 23 - kind.fraction
    # A carry out of the fraction moves into the exponent, as it should.
    rounded = size + np.uint32((1 << (dropped - 1)) - 1) + ((size >> np.uint32(dropped)) & np.uint32(1))
    normal = (rounded >> np.uint32(dropped)).astype(np.int32) - ((127 - kind.bias) << kind.fraction)
    # Below the normal range numbers stand at even steps, the code of which is how many.
    least = 1 - kind.bias
    small = size < np.uint32((127 + least) << 23)
    with np.errstate(invalid="ignore"):  # of infinities and NaNs, which `small` leaves out
        steps = (abs(values) * np.float32(2.0 ** (kind.fraction - least))).round().clip(0, 256).astype(np.int32)
    code = normal * ~small + steps * small
    code = code * (code <= kind.largest) + kind.overflow * (code > kind.largest)
    nan = size > np.uint32(0x7F800000)
    return (code * ~nan + kind.nan * nan + sign).astype(np.uint8)


def float8_values(dtype: str) -> np.ndarray:
    """What each of the 256 codes of an 8-bit float stands for, float64."""
    kind = FLOAT8[dtype]
    codes = np.arange(128)
    exponent, fraction = codes >> kind.fraction, codes & ((1 << kind.fraction) - 1)
    leading = np.where(exponent > 0, 1.0, 0.0)
    values = (leading + fraction / 2.0**kind.fraction) * 2.0 ** (np.maximum(exponent, 1) - kind.bias)
    values[kind.largest + 1 :] = np.nan
    if kind.overflow != kind.nan:
        values[kind.overflow] = np.inf
    return np.concatenate([values, -values])


def widen(array: Any, dtype: str) -> Any:
    """Stored elements of `dtype` as float64, exactly."""
    if dtype in FLOAT8:
        if isinstance(array, np.ndarray):
            return float8_values(dtype)[array]
        import cupy

        return cupy.asarray(float8_values(dtype))[array]
    if dtype == "bf16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN, which becomes a quiet one
        return array.astype(np.float64)


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
    gelu: input x[n], output y[n].
    ceiling_flops: output one float; `iterations` of the loop; alpha and beta are the loop's a and b.
    ceiling_bytes: input and output of shape.n elements of 16 bytes.
    vector_copy: input and output of shape.n elements. reduce: input x[n], output one element, their sum.
    histogram: input ids[n], int32; output counts[k + 1]: of each bin, and in the last place of all ids outside [0, k).
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

    def arguments(self, kernel: Kernel, names: Sequence[str | int] = (), workspace: int = 0) -> tuple[Any, ...]:
        """What `kernel` is launched with, in the order of its C signature.

        Args:
            names: what to pass instead of the kernel's own arguments (see registry.Step).
            workspace: address of the kernel's workspace.

        Raises:
            UserError: a tensor map that the driver refuses, or C = A B asked of scalars that it cannot apply.
        """
        if self.problem.op == "gemm" and not kernel.scales and (self.alpha, self.beta) != (1.0, 0.0):
            raise UserError(f"{kernel.id} computes C = A B and cannot take alpha = {self.alpha}, beta = {self.beta}.")
        arrays = self._arrays()
        scalars: dict[str, Any] = {axis: np.int32(getattr(self.shape, axis)) for axis in "mk"}
        scalars["n"] = (np.int64 if self.problem.op in ("ceiling_bytes", *VECTORS) else np.int32)(self.shape.n)
        scalars |= {"alpha": np.float32(self.alpha), "beta": np.float32(self.beta)}
        scalars |= {"iterations": np.int32(self.iterations)}

        def argument(name: str | int) -> tuple[Any, ...]:
            if isinstance(name, int):
                return (np.int32(name),)
            if name == "w" or name.startswith("w+"):
                return (workspace + int(name[2:] or 0),)
            if name.startswith("n="):
                return (type(scalars["n"])(int(name[2:])),)
            if name.startswith("map:"):
                operand = name.removeprefix("map:")
                return (self.tensor_map(operand, kernel.tensor_maps[operand], kernel.id),)
            if name.startswith("array:"):
                operand = name.removeprefix("array:")
                lengths = self.lengths(operand)
                strides = (lengths[1], 1) if len(lengths) == 2 else (1,)
                return (arrays[operand].data.ptr, *map(np.int32, (*lengths, *strides)))
            return (scalars[name] if name in scalars else arrays[name].data.ptr,)

        return tuple(one for name in names or kernel.arguments for one in argument(name))

    def lengths(self, operand: str) -> tuple[int, ...]:
        """The shape of operand ``a``, ``b`` or ``c`` as it is stored: of a GEMM's (rows, columns), else its length."""
        inputs, output = (matrices if self.problem.op == "gemm" else counts)(self.problem, self.shape)
        found = output if operand == "c" else inputs["ab".index(operand)]
        return found if isinstance(found, tuple) else (found,)

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


LAWS = {
    "uniform": "uniform",
    "skewed": "log-uniform: bin b with probability log(1 + 1/(b + 1)) / log(bins + 1)",
    "constant": "all in one bin",
}
"""Laws that the ids of a histogram are drawn from."""


def draw_ids(law: str, n: int, bins: int, seed: int, xp: Any) -> Any:
    """n ids in [0, bins), int32, of `law`; `xp` is NumPy or CuPy."""
    if law == "constant":
        return xp.full(n, bins // 2, xp.int32)
    drawn = xp.random.default_rng(seed).random(n)  # float64, so that millions of bins are drawn evenly
    if law == "skewed":
        drawn *= math.log(bins + 1)
        xp.exp(drawn, out=drawn)
        drawn -= 1.0
    else:
        drawn *= bins
    return xp.minimum(drawn.astype(xp.int32), bins - 1)


def random(problem: Problem, shape: Shape, seed: int) -> tuple[list[Any], Any]:
    """Inputs with normal elements of deviation 1 (or `SPREAD`), of a histogram uniform ids, and an output not yet
    written, on the GPU.
    """
    import cupy

    rng = cupy.random.default_rng(seed)
    inputs, output = counts(problem, shape)
    if problem.op == "histogram":
        ids = draw_ids("uniform", shape.n, shape.k, seed, cupy)
        return [ids], cupy.empty(output, dtype=STORAGE[problem.dtype_out])
    arrays = []
    for count in inputs:
        wide = cupy.float64 if problem.dtype_in == "fp64" else cupy.float32
        values = rng.standard_normal(count, dtype=wide)
        if problem.dtype_in in SPREAD:
            values *= wide(SPREAD[problem.dtype_in])
        arrays.append(narrow(values, problem.dtype_in))
    return arrays, cupy.empty(output, dtype=STORAGE[problem.dtype_out])
