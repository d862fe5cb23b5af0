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

from gemmrepro.core.draws import DISTRIBUTIONS as LAWS
from gemmrepro.core.draws import draw_ids
from gemmrepro.core.dtypes import STORAGE, bits
from gemmrepro.errors import UserError
from gemmrepro.operations import Launched, Problem, Shape, counts
from gemmrepro.registry import Kernel, TensorMap

__all__ = ["LAWS", "Launcher", "Operands", "draw_ids", "random", "work"]

_CUDA_DTYPES = {"fp32": "FLOAT32", "fp16": "FLOAT16", "bf16": "BFLOAT16", "int8": "UINT8"}
"""TMA only moves bits: it has no name for a signed byte."""

_INTEGERS = {32: np.int32, 64: np.int64}


def work(kernel: Kernel, shape: Shape) -> tuple[float | None, float | None]:
    """(FLOP, compulsory bytes) of one launch with beta = 0; see `operations.Work`."""
    done = kernel.problem.operation.work(kernel.problem, shape, Launched(kernel.launch, kernel.params))
    return done.flop, done.compulsory_bytes


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
            alpha=kernel.call.scalars.get("a", 1.0),
            beta=kernel.call.scalars.get("b", 0.0),
            iterations=int(kernel.params.get("iterations", 0)),
        )

    def arguments(self, kernel: Kernel, workspace: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """What `kernel` is launched with, in the order of its C signature.

        Args:
            workspace: arrays beside A, B and C, or in their place, by name.

        Raises:
            UserError: a tensor map that the driver refuses, or C = A B asked of scalars that it cannot apply.
        """
        if self.problem.operation.matrix_product and not kernel.scales and (self.alpha, self.beta) != (1.0, 0.0):
            raise UserError(f"{kernel.id} computes C = A B and cannot take alpha = {self.alpha}, beta = {self.beta}.")
        workspace = workspace or {}
        arrays = {**self.arrays(), **workspace}
        scalars: dict[str, Any] = {axis: np.int32(getattr(self.shape, axis)) for axis in "mk"}
        scalars["n"] = _INTEGERS[self.problem.operation.n_bits](self.shape.n)
        scalars |= {"alpha": np.float32(self.alpha), "beta": np.float32(self.beta)}
        scalars |= {"iterations": np.int32(self.iterations)}

        def argument(name: str | int) -> tuple[Any, ...]:
            if isinstance(name, int):
                return (np.int32(name),)
            if name.startswith("n="):
                return (type(scalars["n"])(int(name[2:])),)
            if name.startswith("map:"):
                operand = name.removeprefix("map:")
                buffer = kernel.run.workspace.get(operand)
                stored = (workspace[operand], buffer.dtype) if buffer else None
                return (self.tensor_map(operand, kernel.call.tensor_maps[operand], kernel.id, stored),)
            if name.startswith("array:"):
                operand = name.removeprefix("array:")
                lengths = workspace[operand].shape if operand in workspace else self.lengths(operand)
                strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
                return (arrays[operand].data.ptr, *map(np.int32, (*lengths, *strides)))
            return (scalars[name] if name in scalars else arrays[name].data.ptr,)

        return tuple(value for name in kernel.call.arguments for value in argument(name))

    def lengths(self, operand: str) -> tuple[int, ...]:
        """Lengths of operand ``a``, ``b`` or ``c`` as it is stored, such as (rows, columns) of a matrix."""
        arrays = self.problem.operation.arrays(self.problem, self.shape)
        return arrays.output if operand == "c" else arrays.inputs["ab".index(operand)]

    def arrays(self) -> dict[str, Any]:
        """The arrays by the names that arguments give them; an operation may have fewer inputs than two."""
        return {**dict(zip("ab", self.inputs, strict=False)), "c": self.output}

    def tensor_map(self, operand: str, wanted: TensorMap, kernel_id: str, stored: tuple[Any, str] | None = None) -> Any:
        """The TMA descriptor of operand ``a``, ``b`` or ``c``; loads outside the matrix read zeros.

        `stored` is another array and its type, whose leading axes are taken as one: rows of matrices stored behind one
        another.

        Raises:
            UserError: the driver refuses it: a row of the matrix is no multiple of 16 bytes, or a box is too large.
        """
        # cuda.core encodes it with cuda.bindings' cuTensorMapEncodeTiled; its enumerations have no public name yet.
        from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
        from cuda.core.utils import StridedMemoryView

        if stored is not None:
            array, dtype = stored[0].reshape(-1, stored[0].shape[-1]), stored[1]
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
                f"{kernel_id}: no tensor map of {operand.upper()} {array.shape} {dtype} with tiles {wanted.box} can be "
                f"made ({error}); TMA wants rows of whole 16 bytes and boxes of at most 256 elements a side."
            ) from None


Launcher = Callable[[Operands], None]
"""Launches something once on operands, on the current stream."""


def random(problem: Problem, shape: Shape, seed: int) -> tuple[list[Any], Any]:
    """Inputs as the operation draws them and an output not yet written, on the GPU."""
    import cupy

    inputs = problem.operation.draw(problem, shape, seed, cupy)
    return inputs, cupy.empty(counts(problem, shape)[1], dtype=STORAGE[problem.dtype_out])
