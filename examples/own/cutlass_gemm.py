"""CUTLASS's GEMM in a shared library, called through ctypes. Build it first, for the GPU at hand:

nvcc -O3 -std=c++17 -arch=native -isystem cutlass/include -Xcompiler -fPIC -shared -o libcutlass_gemm.so cutlass_gemm.cu

`cutlass/include` is that of a clone of CUTLASS, or of the Python package nvidia-cutlass, which the image cuda13 has:
/opt/venv/lib/python3.11/site-packages/cutlass_library/source/include.
"""

import ctypes
from pathlib import Path

KERNEL = {
    "title": "CUTLASS, mma.sync",
    "dtype_in": "bf16",
    "dtype_out": "bf16",
    "multiple_of": {"n": 8, "k": 8},
    "sizes": [1024, 4096, 8192],
}

library = ctypes.CDLL(str(Path(__file__).with_name("libcutlass_gemm.so")))
library.cutlass_gemm.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


def bind(a, b, c, stream):
    pointers = [array.data.ptr for array in (a, b, c)]
    m, k = a.shape

    def launch():
        if status := library.cutlass_gemm(*pointers, m, b.shape[1], k, stream):
            raise RuntimeError(f"the launch failed with CUTLASS's status {status}")

    return launch
