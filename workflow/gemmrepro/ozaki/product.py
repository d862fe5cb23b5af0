"""Slices to C: sum over the kept pairs of 2^(e_p + f_q) (D_p E_q), the outer sum in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.ozaki import accumulate, pairs
from gemmrepro.ozaki.arrays import namespace, scaled_back, set_aside, spoil
from gemmrepro.ozaki.splitting import Split, split

Inner = Callable[[Any, Any], Any]
"""Multiplies the digits of two slices, [m,k] by [k,n], to float64 [m,n]: `accumulate.exact` or a model."""

ORDERS = ("article", "small first")


def _inner_in_blocks(inner: Inner, a: Any, b: Any, k_block: int | None) -> Any:
    """The inner product; with `k_block`, of an accumulator that is added to a float64 sum and emptied that often."""
    k = a.shape[1]
    if k_block is None or k_block >= k:
        return inner(a, b)
    return sum(inner(a[:, start : start + k_block], b[start : start + k_block]) for start in range(0, k, k_block))


def multiply(
    a: Split,
    b: Split,
    d: int | None = None,
    inner: Inner = accumulate.exact,
    k_block: int | None = None,
    order: str = "article",
) -> Any:
    """C[m,n] in float64 from the slices of A[m,k] and B[k,n].

    Args:
        d: keep pairs with p + q < d (Fast Mode); None keeps all.
        inner: how the digits' inner products are summed.
        k_block: number of k after which the low-precision accumulator is drained; None: only at the end.
        order: of the outer float64 sum: "article" (p by p, q by q) or "small first" (which rounds less).

    The exponents of the first slices are factored out and applied to the sum, so that no pair overflows or underflows
    if C does not; otherwise this changes no bit.

    Raises:
        UserError: shapes that do not match, or an argument out of range.
    """
    if a.residual.shape[1] != b.residual.shape[0]:
        raise UserError(f"A has {a.residual.shape[1]} columns and B has {b.residual.shape[0]} rows; they must agree.")
    if order not in ORDERS:
        raise UserError(f"order is {order!r}; choose one of {', '.join(ORDERS)}.")
    if k_block is not None and k_block < 1:
        raise UserError(f"k_block is {k_block}; it must be at least 1.")
    xp = namespace(a.residual)
    total = xp.zeros((a.residual.shape[0], b.residual.shape[1]))
    kept = pairs.select(len(a), len(b), d)
    if not kept:
        return total
    if order == "small first":
        kept = sorted(kept, key=sum, reverse=True)
    top_a, top_b = a.slices[0].exponent, b.slices[0].exponent
    for p, q in kept:
        slice_a, slice_b = a.slices[p], b.slices[q]
        exponent = (slice_a.exponent - top_a) + (slice_b.exponent - top_b)
        total += xp.ldexp(_inner_in_blocks(inner, slice_a.digits, slice_b.digits, k_block), exponent)
    return scaled_back(total, top_a + top_b)


def gemm(
    a: Any,
    b: Any,
    rho: int,
    scale: str = "vector",
    count: int | None = None,
    step: int | None = None,
    d: int | None = None,
    nonfinite: str = "nan",
    **how: Any,
) -> Any:
    """C[m,n] = A[m,k] B[k,n], float64: split both operands and multiply their slices.

    Args:
        scale: "matrix" (the article: one scale for all of A, one for all of B) or "vector" (one per row of A and
            per column of B).
        rho, count, step: of `splitting.split`.
        d, how: of `multiply`.
        nonfinite: of `arrays.set_aside`.

    Raises:
        UserError: bad operands or arguments.
    """
    scales = {"matrix": ("matrix", "matrix"), "vector": ("row", "column")}
    if scale not in scales:
        raise UserError(f"scale is {scale!r}; choose 'matrix' or 'vector'.")
    finite_a, finite_b, rows, columns = set_aside(a, b, nonfinite)
    of_a, of_b = scales[scale]
    split_a, split_b = split(finite_a, rho, of_a, count, step), split(finite_b, rho, of_b, count, step)
    return spoil(multiply(split_a, split_b, d=d, **how), rows, columns)
