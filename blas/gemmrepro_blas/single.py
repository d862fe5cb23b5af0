"""`sgemm`: a product in fp32 on Hopper's tensor cores, by any kernel of the family sgemm.

Each kernel states a bound for every element (`kernels/sgemm/NOTES.md`); `accuracy` chooses among them. It comes on top
of what a sum in fp32 has, so cuBLAS's SGEMM keeps every one, and multiplies where the shape tells that it is faster.
Nothing is decided on the device, so the host waits for nothing.
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
    on_gpu,
    operands,
    real_scalar,
)
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import SINGLES, Matrix
from gemmrepro_blas.replay import Place, Recording, placed
from gemmrepro_blas.table import BYTES, Layout, Shape, ceil_div, halved, kernel, laid_out, table, usable

TILE = 128, 384
"""Rows and columns of a block of C are multiples of these: whole tiles of every kernel."""

CUBLAS = 6.0, 0.176, 0.588, 0.77
"""Microseconds of SGEMM on an H200: of a launch; then thousandths for each k of a tile of 64 x 64 of C, and for each k;
millionths for each element of A, B and C. Fitted to 75 shapes; root mean square of the logarithm's error 0.15."""
KERNELS = {
    "sgemm.bf16_x6": (7.9, 9.2, 26.6, 4.60),
    "sgemm.bf16_x9": (8.3, 9.5, 39.8, 4.35),
    "sgemm.tf32_x3": (8.4, 8.0, 26.6, 4.73),
    "sgemm.remainders": (17.1, 2.6, 3.26, 5.66),
    "sgemm.remainders_7": (16.6, 2.6, 3.26, 5.12),
    "sgemm.tf32": (7.4, 8.0, 9.18, 3.77),
}
"""The same of all launches of a kernel: of a call, and of each wave of tiles; then thousandths for each k of a wave,
and millionths for each element of A and B. Errors of 0.06 to 0.10."""
HOST = 50.0
"""Microseconds that the host takes to launch a kernel's steps, and so the least that a call takes."""
GAIN = 1.1
"""How many times faster than SGEMM a kernel must promise to be: less than that the models do not tell."""
CARD = 132
"""Multiprocessors of that H200."""
COLUMNS = {"slices": 128, "moduli": 192}
"""Columns of a tile, of 128 rows, by the parameter that says what the kernel multiplies."""


@lru_cache(maxsize=256)
def pays(name: str, shape: Shape) -> bool:
    """Whether a kernel promises to be faster than SGEMM for a product of this shape, of as many tiles, waves and k."""
    (m, n, k), params = shape, kernel(name).params
    wide = next(columns for param, columns in COLUMNS.items() if param in params)
    waves = ceil_div(ceil_div(m, 128) * ceil_div(n, wide) * params.get("moduli", 1), CARD)
    call, wave, step, element = KERNELS[name]
    ours = call + waves * (wave + 1e-3 * step * k) + 1e-6 * element * (m * k + k * n)
    launch, tile, along, each = CUBLAS
    tiles = ceil_div(m, 64) * ceil_div(n, 64)
    theirs = launch + 1e-3 * k * (tile * tiles + along) + 1e-6 * each * (m * k + k * n + m * n)
    return GAIN * max(ours, HOST) < theirs


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
        self._recorded = lru_cache(maxsize=64)(self._record)

    def run(self, a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], like: Any, stream: int) -> None:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows. Memory is of the library of `like`.

        Raises:
            UserError: the GPU has too little memory left.
        """
        shape = Shape(a.rows, b.columns, a.columns)
        need = "sgemm needs {} GiB beside A, B and C for " + str(shape)
        start, _memory = allocated(like, layout(self.kernel.name, shape).total, self._device, need)
        launches = self._recorded(shape, a.ld, b.ld, c.ld, a.by_columns, b.by_columns)
        launches.replay((stream, a.pointer, b.pointer, c.pointer, scalars[0], scalars[1], start))

    def _record(self, shape: Shape, *way: Any) -> Recording:
        """Launches of a product of this shape, of leading dimensions and layouts `way`, with places for 7 values."""
        (lda, ldb, ldc, a_by_columns, b_by_columns), recording = way, Recording()
        (m, n, k), at = shape, [Place(index) for index in range(7)]
        arrays = {name: at[6] + first for name, (first, _, _) in layout(self.kernel.name, shape).arrays.items()}
        a = Matrix(at[1], m, k, lda, a_by_columns, None)  # type: ignore[arg-type]
        b = Matrix(at[2], k, n, ldb, b_by_columns, None)  # type: ignore[arg-type]
        for side, lines in (("a", a), ("b", b.transposed)):
            self._cut(side, lines, arrays, recording)
        names: dict[str, Any] = {**arrays, "m": m, "n": n, "k": k, "c": at[3], "alpha": at[4], "beta": at[5]}
        names |= {f"map:{name}": self._mapped(name, shape, arrays) for name in self.kernel.steps["multiply"].maps}
        for entry in ("multiply", "reconstruct"):
            if entry in self.kernel.steps:
                wanted = [*self.kernel.steps[entry].arguments]
                arguments = [names[str(name)] for name in wanted]
                if "c" in wanted:
                    arguments[wanted.index("c") + 1] = ldc
                self._launch(recording, entry, shape, *arguments)
        return recording.close()

    def _cut(self, side: str, lines: Matrix, arrays: Mapping[str, Place], recording: Recording) -> None:
        """Slices or residues of `lines` [count, k], along which k runs: rows of A, or columns of B."""
        kind = "slices" if "slices_a" in arrays else "residues"
        source, sizes = (lines.pointer, lines.ld), (lines.rows, lines.columns)
        written = arrays[f"exponents_{side}"], arrays[f"{kind}_{side}"]
        shape = Shape(lines.rows, lines.rows, lines.columns)
        if not lines.by_columns:
            self._launch(recording, f"row_{kind}", shape, *source, *written, *sizes)
            return
        gauge = _gauge(self.kernel.name)
        self._launch(recording, f"column_{gauge}", shape, *source, arrays[gauge], *sizes)
        self._launch(recording, f"column_{kind}", shape, *source, arrays[gauge], *written, *sizes)

    def _mapped(self, name: str, shape: Shape, arrays: Mapping[str, Place]) -> Place:
        dtype, lengths = self.kernel.lengths(name, shape)
        row_bytes = lengths[-1] * BYTES[dtype]
        box = self.kernel.steps["multiply"].maps[name]
        return placed(self._map, arrays[name], dtype, box, lengths, row_bytes)

    def _launch(self, recording: Recording, entry: str, shape: Shape, *arguments: Any) -> None:
        launch = self.kernel.steps[entry].launch(shape, driver.multiprocessors(self._device))
        recording(self._functions[entry].launch, launch, Place(0), *arguments)


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

    With u = 2^-24 and C* exact, every element satisfies

        |C - C*| <= |alpha| (s + t |A||B|) + g (|alpha| |A||B| + |beta C|) + underflow,

    g = (k + 3) u / (1 - (k + 3) u).

    The second term is that of any sum in fp32, and the only one where cuBLAS's SGEMM multiplies: where the shape tells
    that it is faster. On tensor cores a row of A or a column of B with an Inf or a NaN gives NaN.

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
    left, right, into = operands(a, b, c, (bool(transpose_a), bool(transpose_b)), SINGLES)
    scalars = real_scalar(alpha, "alpha", SINGLES), real_scalar(beta, "beta", SINGLES)
    check_rest(c, scalars[1], workspace)
    out = c if c is not None else empty(a, left, right, SINGLES)
    if into is None:
        into = fresh(out, left, right, SINGLES)
    if into.rows and into.columns:
        name, stream = accuracies[accuracy], common_stream(a, b, out)
        path = usable(name, binary)
        k = left.columns if scalars[0] != 0.0 else 0  # BLAS does not read A and B then
        with on_gpu(stream, "sgemm takes memory from a pool", left, right, into) as device:
            if k == 0:
                library.scale(into, scalars[1], stream)
            elif pays(name, Shape(into.rows, into.columns, k)):
                _multiply(program(name, path, device), (left, right, into), scalars, a, stream, workspace)
            else:
                library.multiply(left, right, into, scalars, stream)
    return out


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
    k, longest = a.columns, loaded.kernel.longest_k
    if granted is None and k <= longest:
        loaded.run(a, b, c, scalars, like, stream)
        return
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
