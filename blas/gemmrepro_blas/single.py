"""`sgemm`: a product in fp32 on Hopper's tensor cores, by any kernel of the family sgemm.

Each kernel states a bound for every element (`kernels/sgemm/NOTES.md`); `accuracy` chooses among them. Nothing is
decided on the device, so the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from gemmrepro_blas import driver, library
from gemmrepro_blas.calls import (
    allocated,
    check_rest,
    common_stream,
    empty,
    fresh,
    multipliable,
    on_gpu,
    real_scalar,
    target,
)
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import SINGLES, Matrix, matrix
from gemmrepro_blas.table import BYTES, Layout, Shape, halved, kernel, laid_out, table, usable

TILE = 128, 384
"""Rows and columns of a block of C are multiples of these: whole tiles of every kernel."""


@lru_cache(maxsize=64)
def layout(name: str, shape: Shape) -> Layout:
    """Arrays of a product beside A, B and C. Columns of a transposed A are gauged, too, in an array of its length."""
    known = kernel(name)
    wide = shape._replace(n=max(shape.m, shape.n))
    return laid_out({each: known.lengths(each, wide if each == _gauge(name) else shape) for each in known.arrays})


def _gauge(name: str) -> str:
    """The array of what columns are scaled by, chunk by chunk."""
    return next(each for each in ("peaks", "squares") if each in kernel(name).arrays)


class Program:
    """The launches of one kernel of the family, loaded on one GPU, which is current whenever one is called."""

    def __init__(self, name: str, path: Path, device: int) -> None:
        """Load a fat binary. Raises UserError if the driver cannot."""
        self.kernel, self._device = kernel(name), device
        self._code = driver.Code(path, device)
        self._functions = {entry: driver.Function(self._code, entry) for entry in self.kernel.steps}
        self._map = lru_cache(maxsize=64)(driver.tensor_map)

    def workspace(self, shape: Shape, like: Any) -> tuple[Any, Mapping[str, int]]:
        """What holds the memory beside A, B and C, and where arrays begin.

        Raises:
            UserError: the GPU has too little memory left.
        """
        arrays = layout(self.kernel.name, shape)
        need = f"sgemm needs {{}} GiB beside A, B and C for {shape}"
        start, memory = allocated(like, arrays.total, self._device, need)
        return memory, {name: start + first for name, (first, _, _) in arrays.arrays.items()}

    def run(self, a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], like: Any, stream: int) -> None:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows. Memory is of the library of `like`."""
        shape = Shape(a.rows, b.columns, a.columns)
        _memory, arrays = self.workspace(shape, like)
        for side, lines in (("a", a), ("b", b.transposed)):
            self._cut(side, lines, arrays, stream)
        names: dict[str, Any] = {**arrays, "m": shape.m, "n": shape.n, "k": shape.k}
        names |= {"c": c.pointer, "alpha": float(scalars[0]), "beta": float(scalars[1])}
        names |= {f"map:{name}": self._mapped(name, shape, arrays) for name in self.kernel.steps["multiply"].maps}
        for entry in ("multiply", "reconstruct"):
            if entry in self.kernel.steps:
                wanted = [*self.kernel.steps[entry].arguments]
                arguments = [names[str(name)] for name in wanted]
                if "c" in wanted:
                    arguments[wanted.index("c") + 1] = c.ld
                self._launch(stream, entry, shape, *arguments)

    def _cut(self, side: str, lines: Matrix, arrays: Mapping[str, int], stream: int) -> None:
        """Slices or residues of `lines` [count, k], along which k runs: rows of A, or columns of B."""
        kind = "slices" if "slices_a" in arrays else "residues"
        source, sizes = (lines.pointer, lines.ld), (lines.rows, lines.columns)
        written = arrays[f"exponents_{side}"], arrays[f"{kind}_{side}"]
        shape = Shape(lines.rows, lines.rows, lines.columns)
        if not lines.by_columns:
            self._launch(stream, f"row_{kind}", shape, *source, *written, *sizes)
            return
        gauge = _gauge(self.kernel.name)
        self._launch(stream, f"column_{gauge}", shape, *source, arrays[gauge], *sizes)
        self._launch(stream, f"column_{kind}", shape, *source, arrays[gauge], *written, *sizes)

    def _mapped(self, name: str, shape: Shape, arrays: Mapping[str, int]) -> bytes:
        dtype, lengths = self.kernel.lengths(name, shape)
        row_bytes = lengths[-1] * BYTES[dtype]
        return self._map(dtype, self.kernel.steps["multiply"].maps[name], arrays[name], lengths, row_bytes)

    def _launch(self, stream: int, entry: str, shape: Shape, *arguments: Any) -> None:
        launch = self.kernel.steps[entry].launch(shape, driver.multiprocessors(self._device))
        self._functions[entry].launch(launch, stream, *arguments)


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
    workspace: int | None = None,
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
        workspace: bytes beside A, B and C that it may use at a time; C is made in blocks, with the same bits, where it
            needs more.
        binary: the fat binary of that kernel; by default the build stage's.

    Raises:
        UserError: operands that do not fit, overlap C, are not on a Hopper GPU or not float32; scalars that are no real
            numbers; an unknown accuracy; arrays of libraries whose current streams differ; a stream that is being
            captured; no binary, or one of other sources; too little memory.
    """
    accuracies = table()["sgemm"]
    if accuracy not in accuracies:
        known = ", ".join(repr(name) for name in accuracies)
        raise UserError(f"accuracy is {accuracy!r}; choose one of {known}.")
    left, right = _factors(a, b, transpose_a, transpose_b)
    scalars = real_scalar(alpha, "alpha", SINGLES), real_scalar(beta, "beta", SINGLES)
    check_rest(c, scalars[1], workspace)
    out = c if c is not None else empty(a, left, right, SINGLES)
    into = target(c, left, right, SINGLES) if c is not None else fresh(out, left, right, SINGLES)
    if into.by_columns:  # C^T = B^T A^T
        left, right, into = right.transposed, left.transposed, into.transposed
    if into.rows and into.columns:
        name, path = accuracies[accuracy], usable(accuracies[accuracy], binary)
        stream = common_stream(a, b, out)
        with on_gpu(stream, "sgemm takes memory from a pool", left, right, into) as device:
            _multiply(program(name, path, device), (left, right, into), scalars, a, stream, workspace)
    return out


def _factors(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[Matrix, Matrix]:
    """A and B as they are multiplied. Raises UserError if they cannot be."""
    left, right = matrix(a, "A", kind=SINGLES), matrix(b, "B", kind=SINGLES)
    left, right = (left.transposed if transpose_a else left), (right.transposed if transpose_b else right)
    return multipliable(left, right)


def _multiply(
    loaded: Program,
    operands: tuple[Matrix, Matrix, Matrix],
    scalars: tuple[float, float],
    like: Any,
    stream: int,
    granted: int | None,
) -> None:
    """Launch the products of all blocks of C, and for each of all stretches of k that the kernel takes."""
    (a, b, c), (alpha, beta) = operands, scalars
    k = a.columns if alpha != 0.0 else 0  # BLAS does not read A and B then
    if k == 0:
        library.scale(c, beta, stream)
        return
    longest = loaded.kernel.longest_k
    block = _block(loaded.kernel.name, Shape(c.rows, c.columns, min(k, longest)), granted)
    for top, left, start in product(range(0, c.rows, block.m), range(0, c.columns, block.n), range(0, k, longest)):
        rows, columns = (top, min(c.rows, top + block.m)), (left, min(c.columns, left + block.n))
        stop = min(k, start + longest)
        factors = a.part(rows, (start, stop)), b.part((start, stop), columns)
        loaded.run(*factors, c.part(rows, columns), (alpha, 1.0 if start else beta), like, stream)


def _block(name: str, shape: Shape, granted: int | None) -> Shape:
    """The part of C that is made at once in `granted` bytes.

    Raises:
        UserError: not even a tile fits.
    """

    def needed(block: Shape) -> int:
        return layout(name, block).total

    block = halved(shape, TILE, needed, granted)
    if granted is not None and needed(block) > granted:
        raise UserError(
            f"workspace grants {granted} bytes and a block of {block} takes {needed(block)}; grant more, or pass "
            "shorter stretches of k."
        )
    return block
