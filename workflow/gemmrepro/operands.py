"""The arrays and scalars of a launch, and the order in which a kernel takes them.

CuPy has neither bfloat16 nor 8-bit floats, so their arrays hold the bits as unsigned integers. TF32 is stored as fp32
with the lower 13 bits zero, so no kernel has to round it. `core.dtypes` converts between stored elements and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.core.dtypes import DISTRIBUTIONS as LAWS
from gemmrepro.core.dtypes import STORAGE, bits, draw_ids, draw_ring, draw_words, link_to
from gemmrepro.errors import UserError
from gemmrepro.operations import Problem, Shape, Work, counts
from gemmrepro.registry import Kernel, TensorMap

__all__ = ["LAWS", "Launcher", "Operands", "draw_ids", "draw_ring", "draw_words", "link_to", "random", "work"]

_CUDA_DTYPES = {"fp32": "FLOAT32", "tf32": "FLOAT32", "fp16": "FLOAT16", "bf16": "BFLOAT16"} | dict.fromkeys(
    ("int8", "fp8_e4m3", "fp8_e5m2"), "UINT8"
)
"""Names of cuda.core's `TensorMapDataType`. TMA only moves bits, so a type of 8 bits passes as UINT8."""

_INTEGERS = {32: np.int32, 64: np.int64}


def work(kernel: Kernel, shape: Shape) -> Work:
    """FLOP and bytes of one launch with beta = 0; see `operations.Work`."""
    return kernel.problem.operation.work(kernel.problem, shape, kernel)


@dataclass(frozen=True)
class Operands:
    """Arrays (CuPy, C-contiguous, element types as in STORAGE) and scalars of one launch, by operation.

    gemm: inputs A[m,k] and B[k,n] in the problem's layout, output C[m,n]; alpha and beta as in BLAS.
    gemm_epilogue: inputs A, B as for gemm, C[m,n] and bias[n], output D[m,n] = GELU(alpha A B + beta C + bias).
    vector_add: inputs x[n], y[n], output z[n]. vector_add_in_place: input x[n], output y[n], which is read as well.
    recurrence: output int32 [x after k steps from n, cycles, nanoseconds]. walk: input links[n], output int32 [place
    after k hops in words, cycles, nanoseconds]. stream: input words[n], output sums of what k passes read.
    copy: input and output matrices [m,n]. gelu: input x[n], output y[n].
    ceiling_flops: output one float; `iterations` of the loop; alpha and beta are the loop's a and b.
    ceiling_bytes: input and output of shape.n elements of 16 bytes.
    vector_copy: input and output of shape.n elements. reduce: input x[n], output one element, their sum.
    histogram: input ids[n], int32; output counts[k + 1]: one per bin, and the number of ids outside [0, k) last.
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
        """The arguments of a launch of `kernel`, in the order of its C signature; `workspace` has arrays by name.
        Raises UserError if the driver refuses a tensor map, or the kernel computes C = A B and would have to scale."""
        # One launch of several may write no C, and leave alpha and beta to another.
        writes_c = bool({"c", "map:c", "array:c"} & {*kernel.call.arguments})
        plain = (self.alpha, self.beta) == (1.0, 0.0)
        if self.problem.operation.matrix_product and writes_c and not kernel.scales and not plain:
            raise UserError(f"{kernel.id} computes C = A B and cannot take alpha = {self.alpha}, beta = {self.beta}.")
        workspace = workspace or {}
        arrays = {**self.arrays(), **workspace}
        scalars: dict[str, Any] = {axis: np.int32(getattr(self.shape, axis)) for axis in "mk"}
        scalars["n"] = _INTEGERS[self.problem.operation.n_bits](self.shape.n)
        # Gates draw alpha and beta as fp32 and judge by those values; FP64 kernels take the same ones as doubles.
        real = np.float64 if self.problem.dtype_out == "fp64" else np.float32
        scalars |= {"alpha": real(np.float32(self.alpha)), "beta": real(np.float32(self.beta))}
        scalars |= {"iterations": np.int32(self.iterations)}

        def argument(name: str | int) -> tuple[Any, ...]:
            if isinstance(name, int):
                return (np.int32(name),)
            if name.startswith("n="):
                return (type(scalars["n"])(int(name[2:])),)
            kind, _, operand = name.rpartition(":")
            if kind == "map":
                buffer = kernel.run.workspace.get(operand)
                stored = (workspace[operand], buffer.dtype) if buffer else None
                return (self.tensor_map(operand, kernel.call.tensor_maps[operand], kernel.id, stored),)
            if kind == "array":
                lengths = workspace[operand].shape if operand in workspace else self.lengths(operand)
                strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
                return (arrays[operand].data.ptr, *map(np.int32, (*lengths, *strides)))
            return (scalars[name] if name in scalars else arrays[name].data.ptr,)

        return tuple(value for name in kernel.call.arguments for value in argument(name))

    def lengths(self, operand: str) -> tuple[int, ...]:
        """The shape of an input, or of the output ``c``, as stored, such as (rows, columns) of a matrix."""
        arrays = self.problem.operation.arrays(self.problem, self.shape)
        return arrays.output if operand == "c" else arrays.inputs[self._names.index(operand)]

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self.problem.operation.inputs]

    def arrays(self) -> dict[str, Any]:
        """The arrays by argument name: `Operation.inputs` as far as there are any, and ``c``."""
        return {**dict(zip(self._names, self.inputs, strict=False)), "c": self.output}

    def tensor_map(self, operand: str, wanted: TensorMap, kernel_id: str, stored: tuple[Any, str] | None = None) -> Any:
        """The TMA descriptor of an input or of the output ``c``; loads outside the matrix read zeros. See `encoded`.
        `stored` is another array and its dtype, instead of the operand; its leading axes are flattened into rows."""
        if stored is not None:
            array, dtype = stored[0].reshape(-1, stored[0].shape[-1]), stored[1]
        else:
            dtype = self.problem.dtype_of(operand)
            array = self.arrays()[operand].reshape(self.lengths(operand))
        return encoded(array, dtype, wanted, kernel_id, operand.upper())


def encoded(array: Any, dtype: str, wanted: TensorMap, kernel_id: str, name: str) -> Any:
    """The TMA descriptor of a matrix that is stored by rows; `name` is what a message calls it.
    Raises UserError if the driver refuses it: a row's length is not a multiple of 16 bytes, or the box is too large."""
    # cuda.core encodes it with cuda.bindings' cuTensorMapEncodeTiled; its enumerations have no public name yet.
    from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
    from cuda.core.utils import StridedMemoryView

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
            f"{kernel_id}: no tensor map of {name} {array.shape} {dtype} with tiles {wanted.box} can be "
            f"made ({error}); TMA needs rows of a multiple of 16 bytes and boxes of at most 256 elements per side."
        ) from None


Launcher = Callable[[Operands], None]
"""Launches a kernel or a library call once on operands, on the current stream."""


def random(problem: Problem, shape: Shape, seed: int) -> tuple[list[Any], Any]:
    """Random inputs of `problem`, and an uninitialized output, as flat CuPy arrays."""
    import cupy

    inputs = problem.operation.draw(problem, shape, seed, cupy)
    return inputs, cupy.empty(counts(problem, shape)[1], dtype=STORAGE[problem.dtype_out])
