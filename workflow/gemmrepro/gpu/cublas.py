"""libcublas and libcublasLt through nvmath-python's bindings, for row-major arrays.

CuPy's binding fails during stream capture, which the CUDA graphs of short launches need. Row-major C = AB is passed as
column-major C' = B'A', so nothing is transposed. A handle's math mode is set to the default and read back: TF32, BF16x9
emulation and the like are off. Handles, workspaces and the results of cublasLt's heuristic live as long as their
session: graphs refer to the former, and the heuristic takes longer than a small GEMM.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from gemmrepro.errors import UserError
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

OP_N, OP_T = 0, 1
"""cublasOperation_t."""

COMPUTE_32F = 68
"""cublasComputeType_t: fp32 accumulation."""

COMPUTE_16F = 64
"""cublasComputeType_t: fp16 accumulation, of fp16 operands."""

COMPUTE = {"tf32": 77, "fp64": 70, "int8": 72}
"""The compute type by operand type if it is not COMPUTE_32F: TF32 products, fp64, int32 accumulation."""

CUDA_TYPES = {
    **{"fp32": 0, "tf32": 0, "fp64": 1, "fp16": 2, "int8": 3, "int32": 10, "bf16": 14},
    **{"fp8_e4m3": 28, "fp8_e5m2": 29},
}
"""cudaDataType_t values."""

LT_ONLY = ("fp8_e4m3", "fp8_e5m2")
"""Operand types that only cublasLt supports."""

DEFAULT_ALGORITHM = -1
"""cublasGemmAlgo_t."""

NOT_SUPPORTED = 15
"""cublasStatus_t."""

LT_TRANSA, LT_TRANSB, LT_EPILOGUE, LT_BIAS_POINTER, LT_FAST_ACCUM = 3, 4, 7, 8, 25
LT_SCALE_POINTERS, LT_SCALE_MODES = (17, 18), (31, 32)
"""cublasLtMatmulDescAttributes_t; the last two of both matrices."""

LT_SCALE_EACH_128, LT_SCALE_128_BY_128 = 4, 5
"""cublasLtMatmulMatrixScale_t: fp32 scales of 128 elements along K (VEC128_32F), and of 128 by 128 (BLK128x128_32F)."""

LT_BLOCK_SCALES_SINCE = 120900
"""The first cublasLt that has them, on Hopper."""

GELU_BIAS = 36
"""cublasLtEpilogue_t: a bias for each row of the column-major output, then GELU in its tanh form."""

LT_MAX_WORKSPACE = 1
"""cublasLtMatmulPreferenceAttributes_t."""

LT_ALGORITHM = (
    *(("algorithm", 0, np.int32), ("tile", 1, np.uint32), ("split-K", 2, np.int32)),
    *(("reduction", 3, np.uint32), ("swizzle", 4, np.uint32), ("custom", 5, np.uint32)),
    *(("stages", 6, np.uint32), ("inner", 7, np.uint16), ("cluster", 8, np.uint16)),
)
"""cublasLtMatmulAlgoConfigAttributes_t: what tells algorithms apart, its number, and the type of its value."""

MATH_MODES = {"default": 0, "tf32": 3, "fp32 emulated": 4, "fp64 emulated": 8}
"""cublasMath_t values. "tf32" rounds fp32 operands to TF32, which the gate must reject. "fp32 emulated" is fp32 by nine
bf16 products (cuBLAS 12.9 and later), "fp64 emulated" fp64 by 8-bit integers (13.0.2)."""

EMULATED = {"fp32 emulated": "12.9", "fp64 emulated": "13.0.2"}
"""The first nvidia-cublas that has a mode of emulation."""

EAGER = 2
"""cublasEmulationStrategy_t: emulate wherever possible, not only where cuBLAS expects it to be faster."""

WORKSPACE_BYTES = 32 << 20
"""The size that cuBLAS's manual recommends for Hopper. Allocated here: a captured call would put cuBLAS's own
allocation into the timed graph."""


FAST = "cublas.gemm_fast"

HALF_SUMS = "cublas.gemm_half_sums"

FUSED = "cublas.gemm_gelu_bias"

OWN_LISTS = (FAST, HALF_SUMS, FUSED)
"""Baselines with lists of algorithms of their own."""

TRIAL_MS = 800.0
"""Maximum duration of a trial of all algorithms."""


class Trials:
    """The algorithms that a session's trials chose, and the maximum duration of a trial.
    An algorithm is an index into the list of `gemmrepro.gpu.baselines`: cublasGemmEx if it supports the types, then
    cublasLt's candidates, which are the same in every process."""

    def __init__(self) -> None:
        self.milliseconds = TRIAL_MS
        self._chosen: dict[tuple[Problem, Shape, str], int] = {}

    def limit(self, seconds: float) -> None:
        """Limit the duration of a trial to `seconds`, for a quick sweep."""
        self.milliseconds = min(TRIAL_MS, 1000.0 * seconds)

    def algorithm(self, problem: Problem, shape: Shape, name: str = "cublas.gemm") -> int | None:
        """The algorithm of the baseline `name` for this problem and shape; None before its trial."""
        return self._chosen.get((problem, shape, name if name in OWN_LISTS else ""))

    def take(self, problem: Problem, shape: Shape, algorithm: int, name: str = "cublas.gemm") -> None:
        """Set the algorithm of the baseline `name` to the winner of a trial, perhaps in an earlier process.
        A sweep that continues thus keeps its baseline."""
        self._chosen[problem, shape, name if name in OWN_LISTS else ""] = algorithm


class OnStream(Protocol):
    """An object with a CuPy stream and open handles, such as `gpu.device.Session`."""

    stream: Any
    libraries: dict[str, Any]


def _binding(name: str) -> Any:
    """nvmath's bindings of a library, which is loaded from CuPy's environment or the CUDA toolkit on first use."""
    try:
        return importlib.import_module(f"nvmath.bindings.{name}")
    except ImportError as error:
        raise UserError(f"nvmath.bindings.{name} cannot be imported ({error}); install nvmath-python.") from None


def _workspace() -> Any:
    import cupy

    return cupy.empty(WORKSPACE_BYTES, dtype=cupy.uint8)


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Errors of nvmath's as one sentence: its classes of errors differ by library and have no common base."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{doing} failed ({error}); check that nvidia-cublas or the CUDA toolkit is installed and fits the driver."
        ) from error


def _repeatable(function: Any, arguments: tuple[Any, ...], kept: tuple[Any, ...]) -> Callable[[], None]:
    """A function that calls the library with these arguments; `kept` holds the objects that they point to."""

    def call() -> None:
        try:
            function(*arguments)
        except Exception as error:  # nvmath's classes of errors differ by library
            raise UserError(f"{function.__name__} of cuBLAS failed ({error}).") from error

    call.kept = kept  # type: ignore[attr-defined]
    return call


class Sums(Enum):
    """Ways to accumulate a type."""

    USUAL = "usual"
    """fp32, but for fp64 and integers; 8-bit floats as precisely as the library can."""
    FAST = "fast"
    """8-bit floats within the tensor core, with fewer bits."""
    HALF = "half"
    """fp16 operands in fp16."""


def compute_type(problem: Problem, sums: Sums = Sums.USUAL) -> int:
    """The cublasComputeType_t of a problem."""
    return COMPUTE_16F if sums is Sums.HALF else COMPUTE.get(problem.dtype_in, COMPUTE_32F)


def scale_type(problem: Problem, sums: Sums = Sums.USUAL) -> str:
    """The dtype of alpha and beta."""
    if sums is Sums.HALF:
        return "fp16"
    return {"fp64": "fp64", "int8": "int32"}.get(problem.dtype_in, "fp32")


def scalars(operands: Operands, sums: Sums = Sums.USUAL) -> tuple[Any, Any]:
    """alpha and beta of `operands`, as arrays of one element of the problem's scale type."""
    kind = {"int32": np.int32, "fp16": np.float16, "fp64": np.float64, "fp32": np.float32}
    alpha, beta = (np.array([x], kind[scale_type(operands.problem, sums)]) for x in (operands.alpha, operands.beta))
    return alpha, beta


def _pointer(array: Any) -> int:
    """The address of a CuPy array."""
    return int(array.data.ptr)


@dataclass(frozen=True)
class ColumnMajor:
    """A row-major GEMM as column-major BLAS sees it: C'[n,m] = op(B') A', so M is n and N is m there.
    `op_first` is OP_T where B (the first matrix) is stored K-major, `op_second` where A is stored M-major."""

    m: int
    n: int
    k: int
    op_first: int
    op_second: int
    ld_first: int
    ld_second: int
    ld_out: int
    type_in: int
    type_out: int

    @classmethod
    def of(cls, problem: Problem, shape: Shape) -> ColumnMajor:
        m, n, k = shape.m, shape.n, shape.k
        k_major, m_major = problem.b_is_k_major, problem.a_is_m_major
        return cls(
            m=n,
            n=m,
            k=k,
            op_first=OP_T if k_major else OP_N,
            op_second=OP_T if m_major else OP_N,
            ld_first=k if k_major else n,
            ld_second=m if m_major else k,
            ld_out=n,
            type_in=CUDA_TYPES[problem.dtype_in],
            type_out=CUDA_TYPES[problem.dtype_out],
        )

    def leading(self, handle: int) -> tuple[int, ...]:
        """The first arguments of a BLAS call: handle, operations on both matrices, and m, n, k."""
        return (handle, self.op_first, self.op_second, self.m, self.n, self.k)


class Cublas:
    """One libcublas handle on the session's stream."""

    def __init__(self, session: OnStream, math: str = "default") -> None:
        """Open it. Raises UserError if libcublas is not installed, or does not accept the math mode."""
        self._library = _binding("cublas")
        with _explained("opening cuBLAS"):
            self._handle = self._library.create()
            self._library.set_stream(self._handle, session.stream.ptr)
        if math in EMULATED:
            # Emulation needs a larger workspace for its slices, which cuBLAS allocates; without it, it falls back to
            # native arithmetic.
            self._emulate(math)
        else:
            self._workspace = _workspace()
            with _explained("giving cuBLAS a workspace"):
                self._library.set_workspace(self._handle, _pointer(self._workspace), WORKSPACE_BYTES)
        with _explained("setting cuBLAS's math mode"):
            self._library.set_math_mode(self._handle, MATH_MODES[math])
            mode = self._library.get_math_mode(self._handle)
            version = self._library.get_version(self._handle)
        if mode != MATH_MODES[math]:
            raise UserError(
                f"cuBLAS is in math mode {mode} although {MATH_MODES[math]} was requested; unset the CUBLAS_* "
                "and NVIDIA_TF32_OVERRIDE variables of your shell."
            )
        # Encoded as major * 10000 + minor * 100 + patch since cuBLAS 11.
        self.version = f"{version // 10000}.{version // 100 % 100}.{version % 100}"

    def _emulate(self, math: str) -> None:
        """Emulate wherever possible. Raises UserError if the library is too old to do so."""
        kind = math.removesuffix(" emulated")
        try:
            self._library.set_emulation_strategy(self._handle, EAGER)
            self._library.set_math_mode(self._handle, MATH_MODES[math])
        except Exception as error:  # nvmath's own class where the library lacks the function
            raise UserError(
                f"this cuBLAS cannot emulate {kind} ({error}); install nvidia-cublas {EMULATED[math]} or later."
            ) from error

    def sgemm(self, operands: Operands) -> Callable[[], None]:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, all row-major fp32."""
        form = ColumnMajor.of(operands.problem, operands.shape)
        a, b = operands.inputs
        alpha, beta = scalars(operands)
        first, second = (_pointer(b), form.ld_first), (_pointer(a), form.ld_second)
        out = (_pointer(operands.output), form.ld_out)
        factors = (*form.leading(self._handle), alpha.ctypes.data, *first, *second)
        return _repeatable(self._library.sgemm, (*factors, beta.ctypes.data, *out), (alpha, beta))

    def gemm_ex(self, operands: Operands, sums: Sums = Sums.USUAL) -> Callable[[], None]:
        """C[m,n] = alpha A B + beta C in the problem's types and layout; cuBLAS chooses the algorithm."""
        form = ColumnMajor.of(operands.problem, operands.shape)
        a, b = operands.inputs
        alpha, beta = scalars(operands, sums)
        first = (_pointer(b), form.type_in, form.ld_first)
        second = (_pointer(a), form.type_in, form.ld_second)
        out = (_pointer(operands.output), form.type_out, form.ld_out)
        choice = (compute_type(operands.problem, sums), DEFAULT_ALGORITHM)
        factors = (*form.leading(self._handle), alpha.ctypes.data, *first, *second)
        arguments = (*factors, beta.ctypes.data, *out, *choice)
        return _repeatable(self._library.gemm_ex, arguments, (alpha, beta))


class _Plan:
    """cublasLt's description of a problem of one shape, and its algorithms. Owns the descriptors.
    `algorithms` are addresses in `answers`, the heuristic's results."""

    def __init__(self, matmul: int, layouts: tuple[int, int, int], answers: Any, found: int, owned: ExitStack):
        self.matmul, self.layouts, self.answers = matmul, layouts, answers
        # An algorithm is the first field of a result.
        places = [place for place in range(found) if answers[place]["state"] == 0]
        self.algorithms = [answers.ctypes.data + place * answers.itemsize for place in places]
        # Not at the end of the process: the context frees everything, and may be broken by then.
        weakref.finalize(self, owned.close).atexit = False


class CublasLt:
    """One libcublasLt handle, and its heuristic's ranking of algorithms."""

    def __init__(self, session: OnStream) -> None:
        """Open it. Raises UserError if libcublasLt is not installed."""
        self._session = session
        self._library = _binding("cublasLt")
        with _explained("opening cublasLt"):
            self._handle = self._library.create()
        self._workspace = _workspace()
        self._plans: dict[tuple[Problem, Shape, int, Sums], _Plan] = {}

    def _made(self, owner: ExitStack, kind: str, *arguments: int) -> int:
        """A new descriptor of a kind, such as ``matmul_desc``, destroyed when `owner` closes."""
        made = int(getattr(self._library, f"{kind}_create")(*arguments))
        owner.callback(getattr(self._library, f"{kind}_destroy"), made)
        return made

    def _set(self, kind: str, descriptor: int, attribute: int, value: Any) -> None:
        """Set an attribute to a NumPy scalar of its type; the library copies it."""
        held = np.array([value])
        setter = getattr(self._library, f"{kind}_set_attribute")
        setter(descriptor, attribute, held.ctypes.data, held.itemsize)

    def _plan(self, problem: Problem, shape: Shape, most: int, sums: Sums) -> _Plan:
        """The heuristic's result, cached."""
        key = problem, shape, most, sums
        if key not in self._plans:
            with _explained("asking cublasLt for algorithms"):
                self._plans[key] = self._ask(problem, ColumnMajor.of(problem, shape), most, sums)
        return self._plans[key]

    def _ask(self, problem: Problem, form: ColumnMajor, most: int, sums: Sums, bias: int = 0) -> _Plan:
        """The heuristic's result; with the address of a `bias`, for a product with the epilogue GELU_BIAS."""
        with ExitStack() as owner:
            scale = CUDA_TYPES[scale_type(problem, sums)]
            matmul = self._made(owner, "matmul_desc", compute_type(problem, sums), scale)
            self._set("matmul_desc", matmul, LT_TRANSA, np.int32(form.op_first))
            self._set("matmul_desc", matmul, LT_TRANSB, np.int32(form.op_second))
            if {"scale_a", "scale_b"} <= {each.name for each in problem.operation.inputs}:
                self._scale_by_blocks(matmul)
            if sums is Sums.FAST:
                self._set("matmul_desc", matmul, LT_FAST_ACCUM, np.int8(1))
            if bias:
                self._set("matmul_desc", matmul, LT_EPILOGUE, np.int32(GELU_BIAS))
                self._set("matmul_desc", matmul, LT_BIAS_POINTER, np.uint64(bias))
            first = (form.k, form.m) if form.op_first == OP_T else (form.m, form.k)
            second = (form.n, form.k) if form.op_second == OP_T else (form.k, form.n)
            layouts = (
                self._made(owner, "matrix_layout", form.type_in, *first, form.ld_first),
                self._made(owner, "matrix_layout", form.type_in, *second, form.ld_second),
                self._made(owner, "matrix_layout", form.type_out, form.m, form.n, form.ld_out),
            )
            answers = np.zeros(most, self._library.matmul_heuristic_result_dtype)
            count = np.zeros(1, np.int32)
            with ExitStack() as asking:
                preference = self._made(asking, "matmul_preference")
                self._set("matmul_preference", preference, LT_MAX_WORKSPACE, np.uint64(WORKSPACE_BYTES))
                question = (self._handle, matmul, *layouts, layouts[2], preference)
                try:
                    self._library.matmul_algo_get_heuristic(*question, most, answers.ctypes.data, count.ctypes.data)
                except self._library.cuBLASLtError as error:
                    if error.status != NOT_SUPPORTED:  # cublasLt has no algorithm; cublasGemmEx may have one
                        raise
            return _Plan(matmul, layouts, answers, int(count[0]), owner.pop_all())

    def _scale_by_blocks(self, matmul: int) -> None:
        """Block scales: the library's first matrix is B. Its heuristic wants pointers, of whatever memory.
        Raises UserError if the library is too old."""
        version = int(self._library.get_version())
        if version < LT_BLOCK_SCALES_SINCE:
            raise UserError(
                f"cublasLt {version // 10000}.{version // 100 % 100} has no block scales of 8-bit floats; install "
                "nvidia-cublas 12.9 or later."
            )
        for attribute, mode in zip(LT_SCALE_MODES, (LT_SCALE_128_BY_128, LT_SCALE_EACH_128), strict=True):
            self._set("matmul_desc", matmul, attribute, np.int32(mode))
        for attribute in LT_SCALE_POINTERS:
            self._set("matmul_desc", matmul, attribute, np.uint64(_pointer(self._workspace)))

    def _scaled(self, call: Callable[[], None], matmul: int, scales: tuple[Any, ...]) -> Callable[[], None]:
        """`call` with the scales of these operands: its descriptor is shared by all operands of a shape."""

        def scaled() -> None:
            for attribute, scale in zip(LT_SCALE_POINTERS, reversed(scales), strict=True):
                self._set("matmul_desc", matmul, attribute, np.uint64(_pointer(scale)))
            call()

        return scaled

    def candidates(self, operands: Operands, most: int, sums: Sums = Sums.USUAL) -> list[Callable[[], None]]:
        """Up to `most` algorithms for the GEMM of `Cublas.gemm_ex`, in the order of cublasLt's heuristic.
        The list is the same each time for the same problem and shape. Arrays must be aligned to 256 bytes, as CuPy's
        are and as the heuristic assumes."""
        plan = self._plan(operands.problem, operands.shape, most, sums)
        a, b, *scales = operands.inputs
        alpha, beta = scalars(operands, sums)
        out, layouts = _pointer(operands.output), plan.layouts
        factors = (_pointer(b), layouts[0], _pointer(a), layouts[1])
        before = (self._handle, plan.matmul, alpha.ctypes.data, *factors, beta.ctypes.data)
        room = (_pointer(self._workspace), WORKSPACE_BYTES, self._session.stream.ptr)
        kept = (alpha, beta, plan)
        calls = [
            _repeatable(self._library.matmul, (*before, out, layouts[2], out, layouts[2], algorithm, *room), kept)
            for algorithm in plan.algorithms
        ]
        return [self._scaled(call, plan.matmul, tuple(scales)) for call in calls] if scales else calls

    def fused(self, operands: Operands, most: int) -> list[Callable[[], None]]:
        """Up to `most` algorithms for D = GELU(alpha A B + beta C + bias), in the order of cublasLt's heuristic.
        A bias belongs to a product's description, so the library is asked again for each. Raises UserError if it has
        none for these types and this layout."""
        problem = operands.problem
        a, b, c, bias = operands.inputs
        with _explained("asking cublasLt for GELU and a bias"):
            plan = self._ask(problem, ColumnMajor.of(problem, operands.shape), most, Sums.USUAL, _pointer(bias))
        if not plan.algorithms:
            raise UserError(
                f"cublasLt {self._library.get_version()} fuses no GELU and bias into {problem} in layout "
                f"{problem.layout} at {operands.shape}; compare with the product and a pointwise kernel instead."
            )
        alpha, beta = scalars(operands)
        layouts = plan.layouts
        before = (self._handle, plan.matmul, alpha.ctypes.data, _pointer(b), layouts[0], _pointer(a), layouts[1])
        arrays = (beta.ctypes.data, _pointer(c), layouts[2], _pointer(operands.output), layouts[2])
        room = (_pointer(self._workspace), WORKSPACE_BYTES, self._session.stream.ptr)
        kept = (alpha, beta, bias, plan)
        return [
            _repeatable(self._library.matmul, (*before, *arrays, algorithm, *room), kept)
            for algorithm in plan.algorithms
        ]

    def described(self, problem: Problem, shape: Shape, most: int, sums: Sums = Sums.USUAL) -> list[str]:
        """Names of `candidates` by the library's numbers: ``cublasLt algorithm 66 tile 20 split-K 1 ...``."""
        plan = self._plan(problem, shape, most, sums)
        return [self._configuration(algorithm) for algorithm in plan.algorithms]

    def _configuration(self, algorithm: int) -> str:
        parts = []
        for name, attribute, kind in LT_ALGORITHM:
            value, written = np.zeros(1, kind), np.zeros(1, np.uint64)
            into = (value.ctypes.data, value.itemsize, written.ctypes.data)
            try:
                self._library.matmul_algo_config_get_attribute(algorithm, attribute, *into)
            except self._library.cuBLASLtError:
                continue  # an older library does not know all of them
            parts.append(f"{name} {value[0]}")
        return " ".join(["cublasLt", *parts])


def opened(session: OnStream, math: str = "default") -> Cublas:
    """The session's cuBLAS handle in `math` mode, opened on first use."""
    key = f"cublas {math}"
    if key not in session.libraries:
        session.libraries[key] = Cublas(session, math)
    return session.libraries[key]


def opened_lt(session: OnStream) -> CublasLt:
    """The session's cublasLt handle, opened on first use."""
    if "cublasLt" not in session.libraries:
        session.libraries["cublasLt"] = CublasLt(session)
    return session.libraries["cublasLt"]
