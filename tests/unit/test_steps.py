"""Kernels of several launches: their records, what a launch is passed, and their binaries."""

import struct
import tracemalloc

import numpy as np
import pytest
from records import Array

from gemmrepro import operations, registry
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.errors import UserError
from gemmrepro.gpu import loaded
from gemmrepro.measure import plan
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape

FUSED = registry.kernel("ozaki.fused_bf16_d9")
NAIVE = registry.kernel("ozaki.naive_fp16")
SHAPE = Shape(48, 32, 16)


def workspace(kernel):
    return {
        name: Array(1000 * (place + 1), one.lengths(SHAPE))
        for place, (name, one) in enumerate(kernel.run.workspace.items())
    }


def test_a_launch_is_passed_pointers_lengths_and_strides_of_any_rank():
    given = Operands(FUSED.problem, SHAPE, (Array(1), Array(2)), Array(3))
    room = workspace(FUSED)
    split = next(part for part in FUSED.codes if part.code.entry == "split_b")
    slices = room["slices_b"].data.ptr
    assert given.arguments(split, room) == (
        *(2, 16, 32, 32, 1),
        *(room["c_b"].data.ptr, 1, 1),
        *(slices, 7, 32, 16, 512, 16, 1),
    )
    other = Array(77, (1, 48, 16))
    extract = next(part for part in NAIVE.codes if part.code.entry == "extract_a")
    passed = given.arguments(extract, {**workspace(NAIVE), "a": Array(5, (48, 16)), "slices_a": other})
    assert passed[:5] == (5, 48, 16, 16, 1) and passed[-7:] == (77, 1, 48, 16, 768, 16, 1)


@pytest.mark.parametrize("shape", [Shape.cube(256), Shape(512, 128, 256)], ids=str)
def test_what_the_judgement_of_a_scheme_takes_is_counted(shape):
    """By what NumPy allocates at the most while it is worked out; a CuPy array more may be alive in an expression."""
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((shape.m, shape.k)), rng.standard_normal((shape.k, shape.n))
    for kernel in [one for one in registry.kernels() if one.promises.error]:
        whole = operations.nbytes(kernel.problem, shape)
        a, b = (operand.astype(STORAGE[kernel.compute.dtype_in]) for operand in wide)
        tracemalloc.start()
        kernel.promises.error(a, b, np)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        counted = plan.own_bytes(kernel, shape) - kernel.workspace_bytes(shape)
        assert counted == kernel.promises.error_copies * whole
        assert taken + whole // 4 <= counted, kernel.id
        assert taken > 0.25 * counted, f"{kernel.id}: {taken / whole}"


def test_fat_binaries_behind_one_another_are_told_apart():
    def one(content: bytes) -> bytes:
        return struct.pack("<IHHQ", loaded.FATBIN_MAGIC, 1, 16, len(content)) + content

    first, second = one(b"first"), one(b"the second")
    assert loaded.fat_binaries(first + second) == [first, second]
    assert loaded.fat_binaries(first) == [first]
    assert loaded.fat_binaries(b"\x7fELF and so on") == [b"\x7fELF and so on"]
    for wrong in (first[:-1], first + b"more", b"nothing of the kind"):
        with pytest.raises(UserError, match="build stage"):
            loaded.fat_binaries(wrong)
