"""What the numerical gate allows of a kernel, as one number per case: for the terminal and the report."""

from __future__ import annotations

from gemmrepro.gates.bounds import UNIT_ROUNDOFF, allowed_error
from gemmrepro.gates.epilogue import SLOPE, GemmEpilogue
from gemmrepro.gates.operations import gate_of
from gemmrepro.gates.pointwise import GAMMA, UNIT
from gemmrepro.registry import Kernel


def allowed(kernel: Kernel, gamma: float | None) -> float | None:
    """The largest error that passes, in units of |A||B| and the output's roundoff; None where there is no such bound.

    With an epilogue it is in units of S, and the bound of `epilogue` at its largest, where |y| and |D| are S.

    Args:
        gamma: of the product's sum.
    """
    found = allowed_error(gamma, kernel.compute.dtype_out)
    if not found or gamma is None or gate_of(kernel.compute.op) is not GemmEpilogue:
        return found
    unit = UNIT_ROUNDOFF[kernel.compute.dtype_out]
    limit = gamma + 4 * UNIT
    if kernel.run.steps:
        limit += unit * (1 + limit)
    limit = SLOPE * limit + GAMMA + 2 * UNIT
    return (limit + unit * (1 + limit)) / unit
