"""How elements are stored and what a kernel is launched with."""

from dataclasses import replace

import numpy as np
import pytest

from gemmrepro import operands
from gemmrepro.errors import UserError
from gemmrepro.operands import Operands
from gemmrepro.registry import Kernel, Launch, Problem, Shape, TensorMap

BF16 = Problem("gemm", "bf16", "bf16", "row,col,row")


def kernel(**options) -> Kernel:
    return Kernel("hopper.x", "H1", "", "", "x", lambda shape: Launch((1, 1, 1), (32, 1, 1)), **options)


class Array:
    """As much of a CuPy array as arguments need."""

    def __init__(self, pointer):
        self.data = type("Memory", (), {"ptr": pointer})


def test_every_bf16_number_survives_widening_and_narrowing():
    every = np.arange(1 << 16, dtype=np.uint16)
    back = operands.narrow(operands.widen(every, "bf16").astype(np.float32), "bf16")
    nan = np.isnan(operands.widen(every, "bf16"))
    np.testing.assert_array_equal(back[~nan], every[~nan])
    assert np.isnan(operands.widen(back[nan], "bf16")).all()


def test_bf16_rounds_to_nearest_with_ties_to_even():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 0x7F7F0000, 100_000, dtype=np.uint32)
    words[:1000] = (words[:1000] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)  # ties
    values = words.view(np.float32)
    got = operands.narrow(values, "bf16")
    below = (words >> np.uint32(16)).astype(np.uint16)
    low, high = operands.widen(below, "bf16"), operands.widen(below + np.uint16(1), "bf16")
    wide = values.astype(np.float64)
    tie = (wide - low) == (high - wide)
    assert tie[:1000].all()
    nearest = np.where((high - wide) < (wide - low), below + 1, below)
    np.testing.assert_array_equal(got, np.where(tie, below + (below & 1), nearest))
    np.testing.assert_array_equal(operands.narrow(-values, "bf16"), got | np.uint16(0x8000))


@pytest.mark.parametrize(("value", "bits"), [(np.inf, 0x7F80), (-np.inf, 0xFF80), (3.4e38, 0x7F80), (0.0, 0)])
def test_bf16_keeps_infinities_and_overflows_into_them(value, bits):
    assert operands.narrow(np.array([value], np.float32), "bf16")[0] == bits


def test_a_nan_whose_payload_rounds_up_stays_a_nan():
    nan = np.array([0x7FFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(operands.widen(operands.narrow(nan, "bf16"), "bf16")).all()


def test_fp16_overflows_into_infinity():
    assert np.isinf(operands.narrow(np.array([1e6], np.float32), "fp16")[0])


def test_a_k_major_b_is_stored_by_columns():
    shape = Shape(2, 3, 5)
    assert operands.matrices(BF16, shape) == (((2, 5), (3, 5)), (2, 3))
    assert operands.matrices(Problem(), shape) == (((2, 5), (5, 3)), (2, 3))
    assert operands.nbytes(BF16, shape) == 2 * (10 + 15 + 6)


def test_arguments_stand_in_the_order_of_the_signature():
    given = Operands(Problem(), Shape(2, 3, 5), (Array(100), Array(200)), Array(300), alpha=2.0, beta=0.5)
    assert given.arguments(kernel()) == (2, 3, 5, 2.0, 100, 200, 0.5, 300)
    assert given.arguments(kernel(arguments=("c", "beta", "alpha", "k"))) == (300, 0.5, 2.0, 5)
    copy = Operands(Problem("ceiling_bytes"), Shape(1, 7, 1), (Array(100),), Array(300))
    assert copy.arguments(kernel(op="ceiling_bytes")) == (100, 300, 7)


def test_a_kernel_without_alpha_refuses_to_scale():
    plain = kernel(arguments=("a", "b", "c"), dtype_in="bf16", dtype_out="bf16", layout="row,col,row")
    given = Operands(BF16, Shape(2, 3, 5), (Array(1), Array(2)), Array(3))
    assert given.arguments(plain) == (1, 2, 3)
    with pytest.raises(UserError, match=r"hopper\.x computes C = A B and cannot take alpha = 2\.0"):
        replace(given, alpha=2.0).arguments(plain)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtype_in": "int3"}, "dtype_in 'int3'"),
        ({"layout": "col,col,col"}, "layout 'col,col,col'"),
        ({"arguments": ("map:a", "b", "c")}, "tensor maps"),
        ({"tensor_maps": {"a": TensorMap((64, 64))}}, "tensor maps"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(wrong, said):
    with pytest.raises(UserError, match=said):
        kernel(**wrong)


def test_a_copy_is_of_a_matrix_read_once_and_written_once():
    copy = kernel(op="copy", dtype_in="bf16", dtype_out="bf16")
    shape = operands.shape_of("copy", 4096)
    assert shape == Shape(4096, 4096, 1) and copy.arguments == ("a", "c", "m", "n")
    assert operands.counts(copy.problem, shape) == ((4096 * 4096,), 4096 * 4096)
    assert operands.work(copy, shape) == (None, 2 * 2 * 4096 * 4096)
    bound = Operands(copy.problem, shape, (Array(16),), Array(32)).arguments(copy)
    assert bound == (16, 32, 4096, 4096)
