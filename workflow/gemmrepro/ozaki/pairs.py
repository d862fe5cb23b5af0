"""The pairs of slices (p, q), counted from 0, that are multiplied.

All s_a s_b of them, or, in Fast Mode, those with p + q < d; the rest is below the wanted accuracy.
"""

from gemmrepro.errors import UserError


def select(slices_a: int, slices_b: int, d: int | None = None) -> list[tuple[int, int]]:
    """The pairs in the article's order, p by p. `d` None keeps all; d >= slices_a + slices_b - 1 does too.
    Raises UserError for d below 1 or a negative count."""
    if slices_a < 0 or slices_b < 0:
        raise UserError(f"there cannot be {slices_a} x {slices_b} slices; give counts of 0 or more.")
    if d is not None and d < 1:
        raise UserError(f"d is {d}; Fast Mode keeps pairs with p + q < d and needs d >= 1.")
    return [(p, q) for p in range(slices_a) for q in range(slices_b) if d is None or p + q < d]


def dropped(slices_a: int, slices_b: int, d: int | None = None) -> list[tuple[int, int]]:
    """The pairs that `select` leaves out."""
    kept = set(select(slices_a, slices_b, d))
    return [pair for pair in select(slices_a, slices_b) if pair not in kept]
