"""A kernel in a shared library, called through ctypes. Build it first, for the GPU at hand:

nvcc -O3 -arch=native -Xcompiler -fPIC -shared -o libtiled.so tiled.cu
"""

import ctypes
from pathlib import Path

KERNEL = {"title": "CUDA, a shared library", "dtype_in": "fp32", "dtype_out": "fp32", "sizes": [1024, 4096]}

library = ctypes.CDLL(str(Path(__file__).with_name("libtiled.so")))
library.tiled.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


def bind(a, b, c, stream):
    pointers = [array.data.ptr for array in (a, b, c)]
    m, k = a.shape

    def launch():
        if error := library.tiled(*pointers, m, b.shape[1], k, stream):
            raise RuntimeError(f"the launch failed with CUDA's error {error}")

    return launch
