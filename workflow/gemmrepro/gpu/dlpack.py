"""Arrays that say through DLPack of which element type they are, where the library that holds them has no such type.

CuPy holds bfloat16 and 8-bit floats as unsigned integers (`operands.STORAGE`). Whoever takes arrays by DLPack, as
cuTile does, reads the type from DLPack's structure (``DLTensor`` of dlpack.h), where it is set here.
"""

from __future__ import annotations

import ctypes
from typing import Any

CODES = {"bf16": 4, "fp8_e4m3": 10, "fp8_e5m2": 12}
"""``DLDataTypeCode`` (dlpack.h, version 1.1) of the element types that are held as unsigned integers."""


class Tensor(ctypes.Structure):
    """``DLTensor``, which a capsule named ``dltensor`` begins with."""

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
    """What `capsule` holds, to be read and written in place; it lives as long as the capsule does."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return Tensor.from_address(pointer(capsule, b"dltensor"))


class Typed:
    """An array of unsigned integers that stand for elements of `dtype`, one of `CODES`."""

    def __init__(self, array: Any, dtype: str) -> None:
        self._array, self._code = array, CODES[dtype]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        capsule = self._array.__dlpack__(stream=stream)
        tensor(capsule).code = self._code
        return capsule


def typed(array: Any, dtype: str) -> Any:
    """`array`, which holds elements of `dtype` as `operands.STORAGE` says, as whoever takes DLPack understands it."""
    return Typed(array, dtype) if dtype in CODES else array
