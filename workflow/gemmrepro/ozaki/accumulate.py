"""Checks of operands, NumPy or CuPy, the treatment of Inf and NaN, and exact inner products of digits."""

from typing import Any

import numpy as np

from gemmrepro.core.dtypes import namespace, nonfinite_lines
from gemmrepro.errors import UserError

DOUBLE_BITS = 53
INT32_LIMIT = 2**31 - 1
NONFINITE = ("nan", "raise")


def check_matrix(array: Any, name: str) -> None:
    """Refuse anything but a float64 matrix. Raises UserError if `array` is not two-dimensional, or not of float64."""
    if getattr(array, "ndim", None) != 2:
        raise UserError(f"{name} must be a matrix (two dimensions); reshape it.")
    if array.dtype != np.float64:
        raise UserError(
            f"{name} holds {array.dtype}, and the schemes split float64; convert it with astype('float64')."
        )


def check_operands(a: Any, b: Any) -> None:
    """Raises UserError unless A[m,k] and B[k,n] can be multiplied: both float64, both NumPy or both CuPy."""
    check_matrix(a, "A")
    check_matrix(b, "B")
    if a.shape[1] != b.shape[0]:
        raise UserError(f"A has {a.shape[1]} columns and B has {b.shape[0]} rows; they must agree.")
    if namespace(a) is not namespace(b):
        raise UserError("one operand is on the host and the other on the GPU; move one of them.")


def set_aside(a: Any, b: Any, nonfinite: str = "nan") -> tuple[Any, Any, Any, Any]:
    """Operands with every row of A and column of B that is not finite replaced by zeros.
    Returns (A, B, replaced rows [m,1], replaced columns [1,n]); `spoil` puts NaN back. Raises UserError for bad
    operands, for Inf or NaN with `nonfinite` "raise", and for any `nonfinite` but "nan" and "raise"."""
    check_operands(a, b)
    if nonfinite not in NONFINITE:
        raise UserError(f"nonfinite is {nonfinite!r}; choose 'nan' or 'raise'.")
    xp = namespace(a)
    rows, columns = nonfinite_lines(a, b)
    if nonfinite == "raise" and (bool(rows.any()) or bool(columns.any())):
        raise UserError(
            f"{int(rows.sum())} rows of A and {int(columns.sum())} columns of B hold Inf or NaN; "
            "remove them, or pass nonfinite='nan'."
        )
    return xp.where(rows, 0.0, a), xp.where(columns, 0.0, b), rows, columns


def ceil_log2(x: Any) -> Any:
    """ceil(log2 x) of float64 `x` >= 0, exactly (a floating-point log2 errs next to powers of two); int32.
    0 for x = 0, whose logarithm is minus infinity: the scale of a zero slice, row or column is 1."""
    xp = namespace(x)
    fraction, exponent = xp.frexp(x)
    return (exponent - (fraction == 0.5)).astype(xp.int32)


def peak(x: Any, scale: str) -> Any:
    """max |x| over the matrix [1,1], each row [m,1] or each column [1,n]; 0 for an empty one.
    Raises UserError if `scale` is not "matrix", "row" or "column"."""
    axes = {"matrix": (0, 1), "row": 1, "column": 0}
    if scale not in axes:
        raise UserError(f"scale is {scale!r}; choose 'matrix', 'row' or 'column'.")
    xp = namespace(x)
    axis = axes[scale]
    shape = tuple(1 if scale == "matrix" or dim == axis else size for dim, size in enumerate(x.shape))
    return xp.abs(x).max(axis=axis, keepdims=True) if x.size else xp.zeros(shape)


def _largest(digits: Any) -> int:
    return int(namespace(digits).abs(digits).max()) if digits.size else 0


def exact(a: Any, b: Any) -> Any:
    """The product of integer-valued float64 `a` [m,k] and `b` [k,n], exactly, as a float64 product of sums up to 2^53.
    With CuPy it is a cuBLAS DGEMM: leave FP64 emulation off. Raises UserError for digits too large for a guarantee."""
    if a.shape[1] * _largest(a) * _largest(b) > 1 << DOUBLE_BITS:
        raise UserError("these digits sum beyond 2^53, where float64 rounds; split k into blocks.")
    return a @ b


def int32(a: Any, b: Any) -> Any:
    """The same product as an int32 accumulator computes it, returned as int64 [m,n].
    Raises UserError if a sum of absolute values may pass 2^31 - 1, so the accumulator may overflow."""
    if a.shape[1] * _largest(a) * _largest(b) > INT32_LIMIT:
        raise UserError(f"inner products of {a.shape[1]} of these digits may overflow int32; split k into blocks.")
    return exact(a, b).astype(np.int64)
