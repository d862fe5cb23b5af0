"""`sgemm`: a product in fp32 on Hopper's tensor cores, by any kernel of the family sgemm.

Each kernel states a bound for every element (`kernels/sgemm/NOTES.md`); `accuracy` chooses among them. Nothing is
decided on the device, so the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import registry
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.errors import UserError
from gemmrepro.operands import encoded
from gemmrepro.operations import Shape
from gemmrepro.registry import Launch, Step
from gemmrepro_blas import library
from gemmrepro_blas.calls import common_stream, empty, multipliable, on_stream, real_scalar, target
from gemmrepro_blas.matrices import SINGLES, Matrix, matrix
from gemmrepro_blas.program import loaded, on_hopper, usable

ACCURACIES = {
    "element": "sgemm.bf16_x6",
    "products": "sgemm.bf16_x9",
    "element, tf32": "sgemm.tf32_x3",
    "norm": "sgemm.remainders",
    "norm, 7": "sgemm.remainders_7",
    "tf32": "sgemm.tf32",
}
"""The kernel by what is asked for (see `sgemm`)."""

CHUNK, DEPTH, LINES = 256, 128, 32
"""Elements of a column that a block looks at and turns round, and columns of a block (lines.cuh)."""
THREADS = (256, 1, 1)

_int = np.int32


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


class Program:
    """The launches of one kernel of the family, loaded on one GPU."""

    def __init__(self, name: str, path: Path, device: int) -> None:
        """Load them from a fat binary.

        Raises:
            UserError: the GPU is not of compute capability 9.0, or its driver cannot load the binary.
        """
        on_hopper("sgemm", device)
        self.kernel, self._device = registry.kernel(name), device
        self._steps = {step.entry: step for step in self.kernel.own_launches}
        code = loaded(name, path, device, self._steps)
        self._functions = {entry: code.get_kernel(entry) for entry in self._steps}
        self._allow(self._steps["multiply"])

    def _allow(self, step: Step) -> None:
        """Let a launch have its shared memory."""
        from cuda.bindings import driver

        shared = step.launch(Shape(1, 1, 1)).shared_bytes
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = driver.CUkernel(int(self._functions[step.entry].handle))
        (status,) = driver.cuKernelSetAttribute(attribute, shared, handle, driver.CUdevice(self._device))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise UserError(f"GPU {self._device} refuses {shared} bytes of shared memory ({status.name}).")

    def workspace(self, shape: Shape) -> dict[str, Any]:
        """Arrays beside A, B and C, on the current stream of CuPy.

        Raises:
            UserError: the GPU has too little memory left.
        """
        import cupy

        buffers = self.kernel.run.workspace
        lengths = {name: buffer.lengths(shape) for name, buffer in buffers.items()}
        lengths[self._gauge] = (_ceil(shape.k, CHUNK), max(shape.m, shape.n))  # A's, too, if it lies by columns
        try:
            return {name: cupy.empty(each, STORAGE[buffers[name].dtype]) for name, each in lengths.items()}
        except cupy.cuda.memory.OutOfMemoryError:
            gib = self.kernel.workspace_bytes(shape) / 2**30
            raise UserError(
                f"sgemm needs {gib:.1f} GiB beside A, B and C for {shape}, which GPU {self._device} does not have "
                "left; free arrays, or multiply in blocks."
            ) from None

    @property
    def _gauge(self) -> str:
        """The array of what columns are scaled by, chunk by chunk."""
        return next(name for name in ("peaks", "squares") if name in self.kernel.run.workspace)

    def run(self, a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], stream: Any) -> None:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows."""
        shape = Shape(a.rows, b.columns, a.columns)
        arrays = self.workspace(shape)
        for side, lines in (("a", a), ("b", b.transposed)):
            self._cut(side, lines, arrays, stream)
        step = self._steps["multiply"]
        names: Mapping[str, Any] = {
            **{name: array.data.ptr for name, array in arrays.items()},
            **{axis: _int(getattr(shape, axis)) for axis in "mnk"},
            **{"c": c.pointer, "alpha": np.float32(scalars[0]), "beta": np.float32(scalars[1])},
            **{f"map:{name}": self._map(step, name, arrays[name]) for name in step.tensor_maps},
        }
        for entry in ("multiply", "reconstruct"):
            if entry in self._steps:
                wanted = [*self._steps[entry].arguments]
                arguments = [names[str(name)] for name in wanted]
                if "c" in wanted:
                    arguments[wanted.index("c") + 1] = _int(c.ld)
                self._launch(stream, entry, self._steps[entry].launch(shape), *arguments)

    def _cut(self, side: str, lines: Matrix, arrays: Mapping[str, Any], stream: Any) -> None:
        """Slices or residues of `lines` [count, k], along which k runs: rows of A, or columns of B."""
        kind = "slices" if "slices_a" in arrays else "residues"
        parts = arrays[f"{kind}_{side}"]
        source, sizes = (lines.pointer, _int(lines.ld)), (_int(lines.rows), _int(lines.columns))
        gauge, written = arrays[self._gauge].data.ptr, (arrays[f"exponents_{side}"].data.ptr, parts.data.ptr)
        if not lines.by_columns:
            self._launch(stream, f"row_{kind}", Launch((lines.rows, 1, 1), THREADS), *source, *written, *sizes)
            return
        blocks = _ceil(lines.rows, LINES)
        looked = Launch((blocks, _ceil(lines.columns, CHUNK), 1), THREADS)
        turned = Launch((blocks, _ceil(parts.shape[-1], DEPTH), 1), THREADS)
        self._launch(stream, f"column_{self._gauge}", looked, *source, gauge, *sizes)
        self._launch(stream, f"column_{kind}", turned, *source, gauge, *written, *sizes)

    def _map(self, step: Step, name: str, array: Any) -> Any:
        dtype = self.kernel.run.workspace[name].dtype
        return encoded(array.reshape(-1, array.shape[-1]), dtype, step.tensor_maps[name], self.kernel.id, name)

    def _launch(self, stream: Any, entry: str, shape: Launch, *arguments: Any) -> None:
        from cuda.core import LaunchConfig, launch

        config = LaunchConfig(grid=shape.grid, block=shape.block, shmem_size=shape.shared_bytes)
        launch(stream, config, self._functions[entry], *arguments)


@cache
def program(name: str, path: Path, device: int) -> Program:
    """The loaded launches; see `Program`."""
    return Program(name, path, device)


def sgemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accuracy: str = "element",
    binary: str | Path | None = None,
) -> Any:
    """C = alpha A B + beta C in float32, on the current stream of CuPy or PyTorch; it returns at once.

    With u = 2^-24 and C* exact, every element satisfies |C - C*| <= |alpha| (s + t |A||B|), plus one rounding and what
    fp32 sums of one product a step may round. A row of A or a column of B with an Inf or a NaN gives NaN.

    Args:
        a, b: A [m,k] and B [k,n] on one GPU, float32: arrays of CuPy or PyTorch, or anything with
            ``__cuda_array_interface__`` or ``__dlpack__``. Transposed and strided views are not copied as long as rows
            or columns are contiguous.
        c: C [m,n], overwritten and returned; by default a new array of A's library. Needed if `beta` is not 0.
        transpose_a, transpose_b: take the transpose of A or B.
        accuracy: "element" (s = 0, t = u and truncation over 64 of k: six bf16 products), "products" (t = truncation
            alone: nine), "element, tf32" (t = 8 u and truncation over 32 of k: three TF32 products); "norm" and
            "norm, 7" (s = 4 sqrt(k) / R times the norms of the row and the column, R = 2^31 or 2^27.2; t = 0: 8 or 7
            INT8 products); "tf32" (t = 2^-10: one).
        binary: the fat binary of that kernel; by default the build stage's.

    Raises:
        UserError: operands that do not fit, overlap C, are not on a Hopper GPU or not float32; scalars that are no real
            numbers; an unknown accuracy; arrays of libraries whose current streams differ; a stream that is being
            captured; no binary, or one of other sources; too little memory.
    """
    if accuracy not in ACCURACIES:
        known = ", ".join(repr(name) for name in ACCURACIES)
        raise UserError(f"accuracy is {accuracy!r}; choose one of {known}.")
    left, right = _factors(a, b, transpose_a, transpose_b)
    scalars = real_scalar(alpha, "alpha"), real_scalar(beta, "beta")
    if c is None and scalars[1] != 0.0:
        raise UserError(f"beta is {beta}, but there is no C to multiply by it; pass c, or leave beta out.")
    out = c if c is not None else empty(a, left.rows, right.columns, SINGLES)
    into = target(out, left, right, SINGLES)
    if into.by_columns:  # C^T = B^T A^T
        left, right, into = right.transposed, left.transposed, into.transposed
    if into.rows and into.columns:
        name = ACCURACIES[accuracy]
        _multiply(name, left, right, into, scalars, usable(binary, name=name), common_stream(a, b, out))
    return out


def _factors(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[Matrix, Matrix]:
    """A and B as they are multiplied. Raises UserError if they cannot be."""
    left, right = matrix(a, "A", kind=SINGLES), matrix(b, "B", kind=SINGLES)
    left, right = (left.transposed if transpose_a else left), (right.transposed if transpose_b else right)
    return multipliable(left, right)


def _multiply(
    name: str, a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], path: Path, stream: int
) -> None:
    """Launch the products of all stretches of k that the kernel takes."""
    alpha, beta = scalars
    k = a.columns if alpha != 0.0 else 0  # BLAS does not read A and B then
    longest = registry.kernel(name).accepts.at_most["k"]
    why = "sgemm takes memory from CuPy's pool"
    with on_stream(stream, why, a, b, c) as (device, queue, _):
        loaded = program(name, path, device)
        if k == 0:
            library.scale(c, beta)
        for start in range(0, k, longest):
            stop = min(k, start + longest)
            loaded.run(a.from_column(start, stop), b.from_row(start, stop), c, (alpha, beta), queue)
            beta = 1.0
