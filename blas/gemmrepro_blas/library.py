"""cuBLAS, on handles of our own: DGEMM and SGEMM in their own precision whatever the environment or a caller's settings
say, and beta C.

A handle of CuPy or PyTorch carries what its users set: math mode, emulation, pointer mode, workspace. And cuBLAS 13
reads CUBLAS_EMULATE_DOUBLE_PRECISION, CUBLAS_EMULATION_STRATEGY and CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT once
in a process, for every handle: with 7 bits of mantissa the default compute type errs by 10^10 of its bound. Two things
end that: environment mode 1 of a handle, which cuBLAS 13.1 exports and its headers leave out, and the pedantic compute
type, which takes a quarter more time on an H200.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import byref, c_double, c_float, c_int, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import DOUBLES, SINGLES, Matrix

PEDANTIC_32F, DEFAULT_64F, PEDANTIC_64F = 69, 70, 71
"""cublasComputeType_t."""
IGNORED = 1
"""The environment mode in which no variable counts."""
_OP_N, _OP_T, _R_32F, _R_64F, _DEFAULT_ALGORITHM = 0, 1, 0, 1, -1

_GEMM = (c_void_p, *5 * (c_int,), c_void_p, *2 * (c_void_p, c_int), c_void_p, c_void_p, c_int)
_GEAM = (c_void_p, *4 * (c_int,), *2 * (c_void_p, c_void_p, c_int), c_void_p, c_int)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasGetVersion_v2": (c_void_p, c_void_p),
    "cublasGemmEx": (
        *(c_void_p, *5 * (c_int,), c_void_p),
        *2 * (c_void_p, c_int, c_int),
        *(c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "cublasDgemm_v2": _GEMM,
    "cublasSgemm_v2": _GEMM,
    "cublasDgeam": _GEAM,
    "cublasSgeam": _GEAM,
}


@cache
def _cublas() -> Any:
    """libcublas: the one that CuPy or PyTorch has loaded, or would load."""
    code = _loaded()
    for name, types in _FUNCTIONS.items():
        function = getattr(code, name)
        function.argtypes, function.restype = types, c_int
    return code


def _loaded() -> ctypes.CDLL:
    names = ("libcublas.so.13", "libcublas.so.12")
    tries = [(name, os.RTLD_NOLOAD) for name in names]
    folders = [Path(folder) / "nvidia" for folder in sys.path if folder]
    tries += [(name, ctypes.DEFAULT_MODE) for name in names]
    for part, name in (("cu13", names[0]), ("cublas", names[0]), ("cublas", names[1])):
        tries += [(str(folder / part / "lib" / name), ctypes.DEFAULT_MODE) for folder in folders]
    for name, mode in tries:
        try:
            return ctypes.CDLL(name, mode=mode)
        except OSError:
            continue
    raise UserError("there is no libcublas.so.13 or .12; install nvidia-cublas, which PyTorch and CuPy bring along.")


class _Handles(threading.local):
    """A thread's handles by GPU, which two threads must not share, and its alpha and beta by the kind of elements."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[int, bool]] = {}
        pairs = {DOUBLES: (c_double(), c_double()), SINGLES: (c_float(), c_float())}
        self.scalars: dict[str, tuple[Any, ...]] = {
            kind.code: (*pair, *map(byref, pair)) for kind, pair in pairs.items()
        }


_handles = _Handles()


def _ignores_variables(code: Any, handle: c_void_p) -> bool:
    """Whether a new handle heeds no variable of the environment, once it is told to."""
    mode = c_int()
    if hasattr(code, "cublasSetEnvironmentMode") and not code.cublasSetEnvironmentMode(handle, c_int(IGNORED)):
        return not code.cublasGetEnvironmentMode(handle, byref(mode)) and mode.value == IGNORED
    return False


def _handle(device: int, stream: int) -> tuple[int, bool]:
    """This thread's handle on the GPU that is current, on a stream, and whether it heeds no variable."""
    made = _handles.of.get(device)
    if made is None:
        new = c_void_p()
        _check(_cublas().cublasCreate_v2(byref(new)), "cublasCreate")
        made = _handles.of[device] = int(new.value or 0), _ignores_variables(_cublas(), new)
    status = _cublas().cublasSetStream_v2(made[0], stream)
    if status:
        _check(status, "cublasSetStream")
    return made


def _check(status: int, what: str) -> None:
    if status:
        raise UserError(f"cuBLAS refuses {what} (status {status}); see that GPU memory is left, and free arrays.")


def version(device: int) -> int:
    """cuBLAS's, as 130100 for 13.1."""
    found = c_int()
    _check(_cublas().cublasGetVersion_v2(_handle(device, 0)[0], byref(found)), "cublasGetVersion")
    return found.value


def multiply(a: Matrix, b: Matrix, c: Matrix, scalars: tuple[float, float], stream: int) -> None:
    """C[m,n] = alpha A[m,k] B[k,n] + beta C in the matrices' own precision, C by rows, on the GPU that is current."""
    code, (handle, plain), kind = _cublas(), _handle(c.device, stream), c.kind
    alpha, beta, at_alpha, at_beta = _handles.scalars[kind.code]
    alpha.value, beta.value = scalars
    first, second = _OP_T if b.by_columns else _OP_N, _OP_T if a.by_columns else _OP_N
    m, n, k = c.rows, c.columns, a.columns
    # By rows, C = A B is what cuBLAS knows as C' = B' A'.
    if plain:
        gemm = code.cublasDgemm_v2 if kind is DOUBLES else code.cublasSgemm_v2
        status = gemm(
            handle, first, second, n, m, k, at_alpha, b.pointer, b.ld, a.pointer, a.ld, at_beta, c.pointer, c.ld
        )
    else:
        element, compute = (_R_64F, _compute_64f(code)) if kind is DOUBLES else (_R_32F, PEDANTIC_32F)
        status = code.cublasGemmEx(
            *(handle, first, second, n, m, k, at_alpha, b.pointer, element, b.ld, a.pointer, element, a.ld),
            *(at_beta, c.pointer, element, c.ld, compute, _DEFAULT_ALGORITHM),
        )
    if status:
        _check(status, f"a product of {m} x {n} x {k} in {kind.element}")


def _compute_64f(code: Any) -> int:
    """The compute type that stays in double on a handle that may heed variables: the pedantic one, if it emulates."""
    return PEDANTIC_64F if hasattr(code, "cublasSetEmulationStrategy") else DEFAULT_64F


def scale(c: Matrix, beta: float, stream: int) -> None:
    """C = beta C, C by rows; it is not read if beta is 0."""
    single = c.kind is SINGLES
    real = c_float if single else c_double
    factor, zero = real(beta), real(0.0)
    geam = _cublas().cublasSgeam if single else _cublas().cublasDgeam
    status = geam(
        *(_handle(c.device, stream)[0], _OP_N, _OP_N, c.columns, c.rows),
        *(byref(factor), c.pointer, c.ld, byref(zero), c.pointer, c.ld, c.pointer, c.ld),
    )
    _check(status, f"a product of {c.rows} x {c.columns} by {beta}")
