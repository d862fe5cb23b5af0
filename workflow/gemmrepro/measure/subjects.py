"""Which declared kernels a recorded row is of."""

from __future__ import annotations

from collections.abc import Mapping

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.registry import Kernel


def kernels_behind(family: str, row: Mapping[str, str]) -> list[Kernel]:
    """The kernel of a row; of a library's, those of the family that are compared with it on these types.

    Empty if the family declares no such kernel or library any more, or declares it with other types, slices, toolkits
    or another baseline: such a row belongs to nothing that is built today.
    """
    kernels = [kernel for kernel in registry.kernels(family) if kernel.compute.dtype_in == row["dtype"]]
    if row["toolkit"] == LIBRARY:
        alike = row["d"] == "" and row["baseline"] in ("", row["kernel"])
        return [kernel for kernel in kernels if alike and kernel.timing.baseline == row["kernel"]]
    d_of = {kernel.id: "" if kernel.compute.d is None else str(kernel.compute.d) for kernel in kernels}
    return [
        kernel
        for kernel in kernels
        if kernel.id == row["kernel"]
        and row["toolkit"] in kernel.platform.toolkits
        and row["d"] == d_of[kernel.id]
        and row["baseline"] == (kernel.timing.baseline or "")
    ]
