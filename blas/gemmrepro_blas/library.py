"""What other libraries compute for dgemm, on the current stream of CuPy: cuBLAS's product, and beta C alone."""

from __future__ import annotations

import numpy as np

from gemmrepro_blas.matrices import Matrix


def multiply(a: Matrix, b: Matrix, c: Matrix, alpha: float, beta: float) -> None:
    """C[m,n] = alpha A[m,k] B[k,n] + beta C by cuBLAS's DGEMM, C by rows."""
    import cupy

    cublas = cupy.cuda.cublas
    handle = cupy.cuda.get_cublas_handle()
    scalars = np.array([alpha, beta], np.float64)
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


def scale(c: Matrix, beta: float) -> None:
    """C = beta C, C by rows; it is not read if beta is 0."""
    import cupy

    size = c.kind.bytes
    count = (c.rows - 1) * c.ld + c.columns
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(c.pointer, size * count, c.owner), 0)
    whole = cupy.ndarray((c.rows, c.columns), np.dtype(c.kind.code), memory, strides=(size * c.ld, size))
    if beta == 0.0:
        whole.fill(0.0)
    else:
        whole *= beta
