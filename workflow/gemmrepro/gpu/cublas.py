"""libcublas and libcublasLt through ctypes, for row-major arrays.

CuPy's binding does not work during stream capture, which the CUDA graphs of short launches need. Row-major C = AB is
passed as the column-major C' = B'A', so that nothing is transposed. A handle's math mode is set to the default and read
back: TF32, BF16x9 emulation and the like are off.

A handle and its workspace live as long as their session, since graphs may refer to them. cublasLt's heuristic is called
once per problem and shape, since it takes longer than a small GEMM; its descriptors live as long as its result.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from contextlib import ExitStack
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

LT_TRANSA, LT_TRANSB, LT_FAST_ACCUM = 3, 4, 25
"""cublasLtMatmulDescAttributes_t."""

LT_MAX_WORKSPACE = 1
"""cublasLtMatmulPreferenceAttributes_t."""

LT_ALGORITHM = (
    *(("algorithm", 0, ctypes.c_int32), ("tile", 1, ctypes.c_uint32), ("split-K", 2, ctypes.c_int32)),
    *(("reduction", 3, ctypes.c_uint32), ("swizzle", 4, ctypes.c_uint32), ("custom", 5, ctypes.c_uint32)),
    *(("stages", 6, ctypes.c_uint32), ("inner", 7, ctypes.c_uint16), ("cluster", 8, ctypes.c_uint16)),
)
"""cublasLtMatmulAlgoConfigAttributes_t: what tells algorithms apart, its number, and the type of its value."""

MATH_MODES = {"default": 0, "tf32": 3, "fp64 emulated": 8}
"""cublasMath_t values. "tf32" exists for tests that the gate rejects it; "fp64 emulated" computes fp64 products from
8-bit integers (cuBLAS 13.0.2 and later)."""

EAGER = 2
"""cublasEmulationStrategy_t: emulate wherever possible, not only where cuBLAS expects it to be faster."""

WORKSPACE_BYTES = 32 << 20
"""The size that cuBLAS's manual recommends for Hopper; smaller GPUs need less. It is allocated here, since otherwise a
captured call would put cuBLAS's own allocation into the timed graph."""


class OnStream(Protocol):
    """An object with a CuPy stream and open handles, such as `gpu.device.Session`."""

    stream: Any
    libraries: dict[str, Any]


def _load(name: str) -> ctypes.CDLL:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except Exception as error:
        raise UserError(
            f"lib{name} cannot be loaded ({error}); install nvidia-cublas in CuPy's environment, or the CUDA toolkit."
        ) from None


def _workspace() -> Any:
    import cupy

    return cupy.empty(WORKSPACE_BYTES, dtype=cupy.uint8)


def _check(name: str, status: int) -> None:
    if status != 0:
        raise UserError(f"{name} failed with cuBLAS status {status}; check that the driver supports this cuBLAS.")


def _repeatable(name: str, function: Any, arguments: tuple[Any, ...], kept: tuple[Any, ...]) -> Callable[[], None]:
    """A function that calls the library with these arguments; `kept` holds the objects that they point to."""

    def call() -> None:
        status = function(*arguments)
        if status != 0:
            raise UserError(f"{name} failed with status {status}.")

    call.kept = kept  # type: ignore[attr-defined]
    return call


class Sums(Enum):
    """Which of the ways to accumulate a type."""

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
    """alpha and beta of `operands`, as ctypes values of the problem's scale type; fp16 as its bits."""
    kind = scale_type(operands.problem, sums)
    if kind == "int32":
        return ctypes.c_int32(int(operands.alpha)), ctypes.c_int32(int(operands.beta))
    if kind == "fp16":
        alpha, beta = (ctypes.c_uint16(int(np.float16(x).view(np.uint16))) for x in (operands.alpha, operands.beta))
        return alpha, beta
    number = {"fp64": ctypes.c_double, "fp32": ctypes.c_float}[kind]
    return number(operands.alpha), number(operands.beta)


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data.ptr)


@dataclass(frozen=True)
class ColumnMajor:
    """A row-major GEMM as column-major BLAS sees it: C'[n,m] = op(B') A', so M is n and N is m there.

    The first matrix is B and the second A; `op_first` is OP_T where B is stored K-major, `op_second` where A is stored
    M-major.
    """

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

    def leading(self, handle: Any) -> tuple[Any, ...]:
        """The first arguments of a BLAS call: handle, operations on both matrices, and m, n, k."""
        lengths = (ctypes.c_int(self.m), ctypes.c_int(self.n), ctypes.c_int(self.k))
        return (handle, ctypes.c_int(self.op_first), ctypes.c_int(self.op_second), *lengths)


class Cublas:
    """One libcublas handle on the session's stream."""

    def __init__(self, session: OnStream, math: str = "default") -> None:
        """Open it.

        Raises:
            UserError: libcublas is not installed, or does not accept the math mode.
        """
        self._library = _load("cublas")
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(session.stream.ptr))
        if math == "fp64 emulated":
            # Emulation needs a larger workspace for its slices, which cuBLAS allocates; without it, it falls back to
            # native fp64.
            self._emulate()
        else:
            self._workspace = _workspace()
            size = ctypes.c_size_t(WORKSPACE_BYTES)
            self._call("cublasSetWorkspace_v2", self._handle, _pointer(self._workspace), size)
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(MATH_MODES[math]))
        mode = ctypes.c_int(-1)
        self._call("cublasGetMathMode", self._handle, ctypes.byref(mode))
        if mode.value != MATH_MODES[math]:
            raise UserError(
                f"cuBLAS is in math mode {mode.value} although {MATH_MODES[math]} was requested; unset the CUBLAS_* "
                "and NVIDIA_TF32_OVERRIDE variables of your shell."
            )
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        # Encoded as major * 10000 + minor * 100 + patch since cuBLAS 11.
        self.version = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"

    def _emulate(self) -> None:
        if not hasattr(self._library, "cublasSetEmulationStrategy"):
            raise UserError("this cuBLAS cannot emulate fp64; install nvidia-cublas 13.0.2 or later.")
        self._call("cublasSetEmulationStrategy", self._handle, ctypes.c_int(EAGER))

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def sgemm(self, operands: Operands) -> Callable[[], None]:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, all row-major fp32."""
        form = ColumnMajor.of(operands.problem, operands.shape)
        a, b = operands.inputs
        alpha, beta = ctypes.c_float(operands.alpha), ctypes.c_float(operands.beta)
        first = (_pointer(b), ctypes.c_int(form.ld_first))
        second = (_pointer(a), ctypes.c_int(form.ld_second))
        out = (_pointer(operands.output), ctypes.c_int(form.ld_out))
        factors = (*form.leading(self._handle), ctypes.byref(alpha), *first, *second)
        arguments = (*factors, ctypes.byref(beta), *out)
        return _repeatable("cublasSgemm", self._library.cublasSgemm_v2, arguments, (alpha, beta))

    def gemm_ex(self, operands: Operands, sums: Sums = Sums.USUAL) -> Callable[[], None]:
        """C[m,n] = alpha A B + beta C in the problem's types and layout; cuBLAS chooses the algorithm."""
        form = ColumnMajor.of(operands.problem, operands.shape)
        a, b = operands.inputs
        alpha, beta = scalars(operands, sums)
        first = (_pointer(b), ctypes.c_int(form.type_in), ctypes.c_int(form.ld_first))
        second = (_pointer(a), ctypes.c_int(form.type_in), ctypes.c_int(form.ld_second))
        out = (_pointer(operands.output), ctypes.c_int(form.type_out), ctypes.c_int(form.ld_out))
        choice = (ctypes.c_int(compute_type(operands.problem, sums)), ctypes.c_int(DEFAULT_ALGORITHM))
        factors = (*form.leading(self._handle), ctypes.byref(alpha), *first, *second)
        arguments = (*factors, ctypes.byref(beta), *out, *choice)
        return _repeatable("cublasGemmEx", self._library.cublasGemmEx, arguments, (alpha, beta))


class _HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class _Plan:
    """cublasLt's description of a problem of one shape, and its algorithms. Owns the descriptors."""

    def __init__(self, matmul: Any, layouts: tuple[Any, Any, Any], usable: list[_HeuristicResult], owned: ExitStack):
        self.matmul, self.layouts, self.algorithms = matmul, layouts, usable
        # Not at the end of the process: the context frees everything, and may be broken by then.
        weakref.finalize(self, owned.close).atexit = False


class CublasLt:
    """One libcublasLt handle, and its heuristic's ranking of algorithms."""

    def __init__(self, session: OnStream) -> None:
        """Open it.

        Raises:
            UserError: libcublasLt is not installed.
        """
        self._session = session
        self._library = _load("cublasLt")
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._workspace = _workspace()
        self._plans: dict[tuple[Problem, Shape, int, Sums], _Plan] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))

    def _made(self, owner: ExitStack, kind: str, *arguments: Any) -> ctypes.c_void_p:
        """A new ``cublasLt<kind>``, destroyed when `owner` closes."""
        made = ctypes.c_void_p()
        self._call(f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
        owner.callback(getattr(self._library, f"cublasLt{kind}Destroy"), made)
        return made

    def _set(self, kind: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"cublasLt{kind}SetAttribute", descriptor, ctypes.c_int(attribute), ctypes.byref(value), size)

    def _plan(self, problem: Problem, shape: Shape, most: int, sums: Sums) -> _Plan:
        """The heuristic's result, cached."""
        key = problem, shape, most, sums
        if key not in self._plans:
            self._plans[key] = self._ask(problem, ColumnMajor.of(problem, shape), most, sums)
        return self._plans[key]

    def _ask(self, problem: Problem, form: ColumnMajor, most: int, sums: Sums) -> _Plan:
        with ExitStack() as owner:
            scale = CUDA_TYPES[scale_type(problem, sums)]
            matmul = self._made(owner, "MatmulDesc", ctypes.c_int(compute_type(problem, sums)), ctypes.c_int(scale))
            self._set("MatmulDesc", matmul, LT_TRANSA, ctypes.c_int32(form.op_first))
            self._set("MatmulDesc", matmul, LT_TRANSB, ctypes.c_int32(form.op_second))
            if sums is Sums.FAST:
                self._set("MatmulDesc", matmul, LT_FAST_ACCUM, ctypes.c_int8(1))

            def layout(kind: int, rows: int, columns: int, ld: int) -> ctypes.c_void_p:
                sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(ld))
                return self._made(owner, "MatrixLayout", ctypes.c_int(kind), *sizes)

            first = (form.k, form.m) if form.op_first == OP_T else (form.m, form.k)
            second = (form.n, form.k) if form.op_second == OP_T else (form.k, form.n)
            layouts = (
                layout(form.type_in, *first, form.ld_first),
                layout(form.type_in, *second, form.ld_second),
                layout(form.type_out, form.m, form.n, form.ld_out),
            )
            answers, count = (_HeuristicResult * most)(), ctypes.c_int()
            with ExitStack() as asking:
                preference = self._made(asking, "MatmulPreference")
                self._set("MatmulPreference", preference, LT_MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
                problem_arguments = (self._handle, matmul, *layouts, layouts[2], preference)
                status = self._library.cublasLtMatmulAlgoGetHeuristic(
                    *problem_arguments, ctypes.c_int(most), answers, ctypes.byref(count)
                )
            if status != NOT_SUPPORTED:  # cublasLt has no algorithm; cublasGemmEx may have one
                _check("cublasLtMatmulAlgoGetHeuristic", status)
            usable = [result for result in answers[: count.value] if not result.state]
            return _Plan(matmul, layouts, usable, owner.pop_all())

    def candidates(self, operands: Operands, most: int, sums: Sums = Sums.USUAL) -> list[Callable[[], None]]:
        """Up to `most` algorithms for the GEMM of `Cublas.gemm_ex`, in the order of cublasLt's heuristic.

        The list is the same each time for the same problem and shape. Arrays must be aligned to 256 bytes, as CuPy's
        are and as the heuristic assumes.
        """
        plan = self._plan(operands.problem, operands.shape, most, sums)
        a, b = operands.inputs
        alpha, beta = scalars(operands, sums)
        out, layouts = _pointer(operands.output), plan.layouts
        calls = []
        for result in plan.algorithms:
            factors = (_pointer(b), layouts[0], _pointer(a), layouts[1])
            room = (_pointer(self._workspace), ctypes.c_size_t(WORKSPACE_BYTES))
            before = (self._handle, plan.matmul, ctypes.byref(alpha), *factors, ctypes.byref(beta))
            after = (ctypes.byref(result.algo), *room, ctypes.c_void_p(self._session.stream.ptr))
            arguments = (*before, out, layouts[2], out, layouts[2], *after)
            kept = (alpha, beta, plan)
            calls.append(_repeatable("cublasLtMatmul", self._library.cublasLtMatmul, arguments, kept))
        return calls

    def described(self, problem: Problem, shape: Shape, most: int, sums: Sums = Sums.USUAL) -> list[str]:
        """What `candidates` are, as the library numbers it: ``cublasLt algorithm 66 tile 20 split-K 1 ...``."""
        return [self._configuration(result) for result in self._plan(problem, shape, most, sums).algorithms]

    def _configuration(self, result: _HeuristicResult) -> str:
        parts = []
        for name, attribute, kind in LT_ALGORITHM:
            value, written = kind(), ctypes.c_size_t()
            size = ctypes.c_size_t(ctypes.sizeof(value))
            algorithm = ctypes.byref(result.algo)
            read = self._library.cublasLtMatmulAlgoConfigGetAttribute
            # An older library does not know all of them.
            if read(algorithm, ctypes.c_int(attribute), ctypes.byref(value), size, ctypes.byref(written)) == 0:
                parts.append(f"{name} {value.value}")
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
