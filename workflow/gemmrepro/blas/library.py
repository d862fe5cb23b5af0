"""cuBLAS's DGEMM for matrices of any layout, on the current stream of CuPy."""

from __future__ import annotations

import numpy as np

from gemmrepro.blas.matrices import Matrix


def multiply(a: Matrix, b: Matrix, c: Matrix, alpha: float, beta: float) -> None:
    """C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows."""
    import cupy

    cublas = cupy.cuda.cublas
    handle = cupy.cuda.get_cublas_handle()
    scalars = np.array([alpha, beta])
    at = scalars.ctypes.data
    first, second = (cublas.CUBLAS_OP_T if x.by_columns else cublas.CUBLAS_OP_N for x in (b, a))
    before = cublas.getPointerMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    try:  # by rows, C = A B is what cuBLAS knows as C' = B' A'
        cublas.dgemm(
            *(handle, first, second, c.columns, c.rows, a.columns),
            *(at, b.pointer, b.ld, a.pointer, a.ld, at + scalars.itemsize, c.pointer, c.ld),
        )
    finally:
        cublas.setPointerMode(handle, before)
