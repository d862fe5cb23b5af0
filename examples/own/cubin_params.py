"""A cubin whose kernel takes a struct, launched by the driver, as CUTLASS's kernels are. Build it first:

nvcc -O3 -arch=native -cubin -o tiled.cubin tiled.cu
"""

import ctypes
from functools import cache
from pathlib import Path

from cuda.bindings import driver

KERNEL = {
    "title": "CUDA, a cubin with Params",
    "dtype_in": "fp32",
    "sizes": [1024, 4096],
    "baseline": "cuda_library.py",
}

TILE, THREADS = 64, 16


class Params(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in "abc"] + [(name, ctypes.c_int) for name in "mnk"]


def checked(answer):
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(status.name)
    return values[0] if values else None


@cache
def kernel():
    module = checked(driver.cuModuleLoad(str(Path(__file__).with_name("tiled.cubin")).encode()))
    return checked(driver.cuModuleGetFunction(module, b"by_params"))


def bind(a, b, c, stream):
    (m, k), n = a.shape, b.shape[1]
    params = Params(a.data.ptr, b.data.ptr, c.data.ptr, m, n, k)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
    grid = (-(-n // TILE), -(-m // TILE), 1)

    def launch(kept=params):
        checked(driver.cuLaunchKernel(kernel(), *grid, THREADS, THREADS, 1, 0, stream, ctypes.addressof(arguments), 0))

    return launch
