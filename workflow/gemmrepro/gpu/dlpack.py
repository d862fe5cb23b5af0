"""Sets element types that CuPy lacks in arrays that are passed through DLPack.

CuPy holds bfloat16 and 8-bit floats as unsigned integers (`core.dtypes.STORAGE`). A consumer of DLPack, such as cuTile,
reads the type from DLPack's structure (``DLTensor`` of dlpack.h), and this module overwrites it there.
"""

from __future__ import annotations

import ctypes
from typing import Any

CODES = {"bf16": 4, "fp8_e4m3": 10, "fp8_e5m2": 12}
"""``DLDataTypeCode`` (dlpack.h, version 1.1) of element types that are stored as unsigned integers."""


class Tensor(ctypes.Structure):
    """``DLTensor``, the head of a capsule named ``dltensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def tensor(capsule: Any) -> Tensor:
    """The tensor in `capsule`, to read and write in place; it lives as long as the capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return Tensor.from_address(pointer(capsule, b"dltensor"))


class Typed:
    """An array of unsigned integers that DLPack exports with element type `dtype`, one of `CODES`."""

    def __init__(self, array: Any, dtype: str) -> None:
        self._array, self._code = array, CODES[dtype]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        capsule = self._array.__dlpack__(stream=stream)
        tensor(capsule).code = self._code
        return capsule


def typed(array: Any, dtype: str) -> Any:
    """`array`, whose elements are stored as in `core.dtypes.STORAGE`, with `dtype` visible to consumers of DLPack."""
    return Typed(array, dtype) if dtype in CODES else array
