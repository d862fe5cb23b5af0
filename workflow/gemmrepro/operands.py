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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import STORAGE, bits, narrow
from gemmrepro.errors import UserError
from gemmrepro.operations import VECTORS, Problem, Shape, counts, matrices, nbytes
from gemmrepro.registry import Kernel, TensorMap

SPREAD = {"int8": 32.0}
"""Standard deviation of random elements, by dtype; 1 where it says nothing."""

_CUDA_DTYPES = {"fp32": "FLOAT32", "fp16": "FLOAT16", "bf16": "BFLOAT16", "int8": "UINT8"}
"""TMA only moves bits: it has no name for a signed byte."""


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

    def arguments(self, kernel: Kernel, others: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """What `kernel` is launched with, in the order of its C signature.

        Args:
            others: arrays beside A, B and C by name, or in their place: the kernel's workspace.

        Raises:
            UserError: a tensor map that the driver refuses, or C = A B asked of scalars that it cannot apply.
        """
        if self.problem.op == "gemm" and not kernel.scales and (self.alpha, self.beta) != (1.0, 0.0):
            raise UserError(f"{kernel.id} computes C = A B and cannot take alpha = {self.alpha}, beta = {self.beta}.")
        others = others or {}
        arrays = {**self.arrays(), **others}
        scalars: dict[str, Any] = {axis: np.int32(getattr(self.shape, axis)) for axis in "mk"}
        scalars["n"] = (np.int64 if self.problem.op in ("ceiling_bytes", *VECTORS) else np.int32)(self.shape.n)
        scalars |= {"alpha": np.float32(self.alpha), "beta": np.float32(self.beta)}
        scalars |= {"iterations": np.int32(self.iterations)}

        def argument(name: str | int) -> tuple[Any, ...]:
            if isinstance(name, int):
                return (np.int32(name),)
            if name.startswith("n="):
                return (type(scalars["n"])(int(name[2:])),)
            if name.startswith("map:"):
                operand = name.removeprefix("map:")
                buffer = kernel.workspace.get(operand)
                given = (others[operand], buffer.dtype) if buffer else None
                return (self.tensor_map(operand, kernel.tensor_maps[operand], kernel.id, given),)
            if name.startswith("array:"):
                operand = name.removeprefix("array:")
                lengths = others[operand].shape if operand in others else self.lengths(operand)
                strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
                return (arrays[operand].data.ptr, *map(np.int32, (*lengths, *strides)))
            return (scalars[name] if name in scalars else arrays[name].data.ptr,)

        return tuple(one for name in kernel.arguments for one in argument(name))

    def lengths(self, operand: str) -> tuple[int, ...]:
        """The shape of operand ``a``, ``b`` or ``c`` as it is stored: of a GEMM's (rows, columns), else its length."""
        inputs, output = (matrices if self.problem.op == "gemm" else counts)(self.problem, self.shape)
        found = output if operand == "c" else inputs["ab".index(operand)]
        return found if isinstance(found, tuple) else (found,)

    def arrays(self) -> dict[str, Any]:
        """The arrays by the names that arguments give them; an operation may have fewer inputs than two."""
        return {**dict(zip("ab", self.inputs, strict=False)), "c": self.output}

    def tensor_map(self, operand: str, wanted: TensorMap, who: str, given: tuple[Any, str] | None = None) -> Any:
        """The TMA descriptor of operand ``a``, ``b`` or ``c``; loads outside the matrix read zeros.

        `given` is another array and its type, whose leading axes are taken as one: rows of matrices stored one behind
        the other.

        Raises:
            UserError: the driver refuses it: a row of the matrix is no multiple of 16 bytes, or a box is too large.
        """
        # cuda.core encodes it with cuda.bindings' cuTensorMapEncodeTiled; its enumerations have no public name yet.
        from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
        from cuda.core.utils import StridedMemoryView

        if given is not None:
            array, dtype = given[0].reshape(-1, given[0].shape[-1]), given[1]
        else:
            dtype = self.problem.dtype_out if operand == "c" else self.problem.dtype_in
            array = self.arrays()[operand].reshape(self.lengths(operand))
        array = bits(array) if dtype == "int8" else array
        try:
            return StridedMemoryView.from_any_interface(array, stream_ptr=-1).as_tensor_map(
                box_dim=wanted.box,
                data_type=getattr(TensorMapDataType, _CUDA_DTYPES[dtype]),
                swizzle=getattr(TensorMapSwizzle, f"SWIZZLE_{wanted.swizzle}B" if wanted.swizzle else "NONE"),
                l2_promotion=TensorMapL2Promotion.L2_256B,
            )
        except Exception as error:
            raise UserError(
                f"{who}: no tensor map of {operand.upper()} {array.shape} {dtype} with tiles {wanted.box} can be made "
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
