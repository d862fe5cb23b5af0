"""How elements are stored and what a kernel is launched with."""

from dataclasses import replace

import numpy as np
import pytest
from records import Array, record

from gemmrepro.core import dtypes
from gemmrepro.errors import UserError
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

BF16 = Problem("gemm", "bf16", "bf16", "row,col,row")


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3", "fp8_e5m2"])
def test_every_number_survives_widening_and_narrowing(dtype):
    every = np.arange(1 << 16, dtype=np.uint16) if dtype == "bf16" else np.arange(256, dtype=np.uint8)
    wide = dtypes.widen(every, dtype)
    back = dtypes.narrow(wide.astype(np.float32), dtype)
    nan = np.isnan(wide)
    np.testing.assert_array_equal(back[~nan], every[~nan])
    assert np.isnan(dtypes.widen(back[nan], dtype)).all()


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("bf16", [np.inf, -np.inf, 3.4e38, 0.0], [np.inf, -np.inf, np.inf, 0]),
        ("bf16", [1 + 2.0**-8, 1 + 3 * 2.0**-8, np.nan], [1, 1 + 2.0**-6, np.nan]),  # ties go to even
        ("fp64", [1 / 3, 1e300], [1 / 3, 1e300]),
        ("fp16", [1e6, -np.inf, np.nan], [np.inf, -np.inf, np.nan]),
        ("fp8_e4m3", [464.0, 464.1, 1e6, np.inf, np.nan], [448, np.nan, np.nan, np.nan, np.nan]),
        ("fp8_e5m2", [61439.0, 61440.0, 1e6, -np.inf, np.nan], [57344, np.inf, np.inf, -np.inf, np.nan]),
        ("fp8_e4m3", [17.0, 19.0, 19.01, 0.5 * 2.0**-9, 1.5 * 2.0**-9], [16, 20, 20, 0, 2.0**-8]),  # 2^-9 is its least
        ("fp8_e5m2", [18.0, 22.0, 17.99, 0.5 * 2.0**-16, 1.5 * 2.0**-16], [16, 24, 16, 0, 2.0**-15]),
        ("tf32", [1 + 2.0**-11, 1 + 3 * 2.0**-11, -np.inf, np.nan], [1, 1 + 2.0**-9, -np.inf, np.nan]),
        ("int8", [0.5, 1.5, -2.5, 127.4, 300.0, -300.0], [0, 2, -2, 127, 127, -128]),
        ("int32", [2.0**40, -(2.0**40)], [2**31 - 1, -(2**31)]),
    ],
)
def test_what_is_beyond_the_largest_number_is_infinite_nan_or_cut(dtype, values, expected):
    wide = np.float64 if dtype in ("int32", "fp64") else np.float32
    np.testing.assert_array_equal(dtypes.widen(dtypes.narrow(np.array(values, wide), dtype), dtype), expected)


def test_a_nan_whose_low_bits_alone_are_set_stays_one_in_tf32():
    assert np.isnan(dtypes.narrow(np.array([0x7F800001], np.uint32).view(np.float32), "tf32"))[0]


def test_arguments_stand_in_the_order_of_the_signature_and_without_alpha_nothing_is_scaled():
    given = Operands(Problem(), Shape(2, 3, 5), (Array(100), Array(200)), Array(300), alpha=2.0, beta=0.5)
    assert given.arguments(record("hopper.x")) == (2, 3, 5, 2.0, 100, 200, 0.5, 300)
    assert given.arguments(record("hopper.x", arguments=("c", "beta", "alpha", "k"))) == (300, 0.5, 2.0, 5)
    copy = Operands(Problem("ceiling_bytes"), Shape(1, 7, 1), (Array(100),), Array(300))
    assert copy.arguments(record("hopper.x", op="ceiling_bytes")) == (100, 300, 7)
    plain = record("hopper.x", arguments=("a", "b", "c"), dtype_in="bf16", dtype_out="bf16", layout="row,col,row")
    given = Operands(BF16, Shape(2, 3, 5), (Array(1), Array(2)), Array(3))
    assert given.arguments(plain) == (1, 2, 3)
    with pytest.raises(UserError, match=r"hopper\.x computes C = A B and cannot take alpha = 2\.0"):
        replace(given, alpha=2.0).arguments(plain)
