"""Element types that DLPack knows and the library that holds the array does not."""

import numpy as np
import pytest

from gemmrepro.core.dtypes import STORAGE
from gemmrepro.gpu import dlpack


@pytest.mark.parametrize("dtype", dlpack.CODES)
def test_only_the_type_changes(dtype):
    array = np.arange(12, dtype=STORAGE[dtype]).reshape(3, 4)[:, :2]
    capsule, plain = dlpack.typed(array, dtype).__dlpack__(), array.__dlpack__()
    said, before = dlpack.tensor(capsule), dlpack.tensor(plain)
    assert (said.code, before.code) == (dlpack.CODES[dtype], 1)
    assert (said.data, said.bits, said.lanes) == (array.ctypes.data, 8 * array.itemsize, 1)
    assert (said.ndim, said.shape[:2], said.strides[:2]) == (2, [3, 2], [4, 1])
    assert dlpack.typed(array, dtype).__dlpack_device__() == array.__dlpack_device__()
    assert dlpack.typed(array, "tf32") is array


def test_another_library_reads_the_type_from_it(monkeypatch):
    """NumPy knows fp16, and nothing of bfloat16."""
    array = np.array([1.0, -2.5], np.float16)
    with pytest.raises((BufferError, RuntimeError), match="dtype"):
        np.from_dlpack(dlpack.typed(array.view(np.uint16), "bf16"))
    monkeypatch.setitem(dlpack.CODES, "fp16", 2)
    assert (np.from_dlpack(dlpack.typed(array.view(np.uint16), "fp16")) == array).all()


def test_an_array_with_another_capsule_is_refused():
    with pytest.raises(ValueError, match="PyCapsule"):
        dlpack.tensor(np.zeros(1).__dlpack__(max_version=(1, 0)))
