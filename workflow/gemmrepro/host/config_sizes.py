"""Whether the configured sizes make sense: families that exist, sizes that one of their kernels can run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro import operations, registry
from gemmrepro.errors import UserError

MOST_BYTES = 1 << 40
"""The operands of one problem may fill a TiB; no GPU has as much memory."""


def size_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with sizes, counters and the sizes of tuning, each naming its key."""
    sweep, known = config["sweep"], registry.family_names()
    places = {
        "sweep.sizes": sweep["sizes"],
        "sweep.counters": sweep["counters"],
        "regimes.sizes": config["regimes"]["sizes"],
        "tune.sizes": config["tune"]["sizes"],
    }
    for key, by_family in places.items():
        for family in by_family:
            if family not in known:
                choice = ", ".join(known)
                yield f"{key}: there is no kernel family {json.dumps(family)}; choose among {choice}"
    for key in ("sweep.sizes", "regimes.sizes", "tune.sizes"):
        for family, sizes in places[key].items():
            for size in sizes if family in known else ():
                if reason := _refusal(family, size):
                    yield f"{key}.{family}: {reason}"
    for family, sizes in sweep["counters"].items():
        timed = sweep["sizes"].get(family, ())
        for size in sizes if family in known else ():
            if size not in timed:
                choice = ", ".join(map(str, timed)) or "none"
                yield f"sweep.counters.{family}: {size} is not timed; choose among sweep.sizes.{family} ({choice})"


def _refusal(family: str, size: int) -> str:
    """Why no kernel of `family` whose problem depends on the size can run `size`; empty if one can."""
    reason = ""
    for kernel in registry.kernels(family):
        if operations.shape_of(kernel.compute.op, size) == operations.shape_of(kernel.compute.op, 2 * size):
            continue
        shape = operations.shape_of(kernel.compute.op, size)
        if operations.nbytes(kernel.problem, shape) > MOST_BYTES:
            reason = f"{size} needs more than a TiB of memory; choose a smaller size"
            continue
        try:
            kernel.check(shape)
        except UserError as error:
            reason = f"no kernel can run {size}; {str(error).rstrip('.')}"
            continue
        return ""
    return reason
