"""What a configuration chooses for one family of what it lists for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def one_of(sweep: Mapping[str, Any], kind: str, family: str) -> tuple[str, ...]:
    """The family's one toolkit or state of the cache, if the section `sweep` gives it one of the listed; else all.

    Args:
        kind: ``toolkit`` or ``cache``.
    """
    every = tuple(sweep[f"{kind}s"])
    one = (sweep.get(f"{kind}_of") or {}).get(family)
    return (one,) if one in every else every


def sizes(sweep: Mapping[str, Any], family: str) -> tuple[int, ...]:
    """The sizes at which the family is timed: of those listed, the ones that `sizes_of` gives it, if there are any."""
    every = tuple(sweep["sizes"].get(family, ()))
    only = (sweep.get("sizes_of") or {}).get(family) or ()
    return tuple(size for size in every if size in only) or every


def is_timed_at(sweep: Mapping[str, Any], family: str, kernel_id: str, size: int) -> bool:
    """Whether the kernel is timed at a size of its family: `kernels_at` may leave some sizes to few kernels."""
    few = (sweep.get("kernels_at") or {}).get(family)
    return not few or size not in few["sizes"] or kernel_id in few["kernels"]
