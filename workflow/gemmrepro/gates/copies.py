"""The numerical gate of copies and vector addition: exact, bit for bit."""

from __future__ import annotations

import numpy as np

from gemmrepro.core.dtypes import bits
from gemmrepro.gates.compare import Verdict
from gemmrepro.gates.guarded import POISON_BITS, SOURCE_GUARD_BITS, Guarded
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Problem, Shape


def _exact(
    session: device.Session,
    launch: Launcher,
    problem: Problem,
    shape: Shape,
    inputs: list[np.ndarray],
    expected: np.ndarray,
) -> Verdict:
    """Run an operation whose result is exact and compare bit for bit, guards included."""
    arrays = [Guarded(values, SOURCE_GUARD_BITS) for values in inputs]
    out = Guarded(np.full(expected.shape, POISON_BITS[expected.itemsize], bits(expected).dtype).view(expected.dtype))
    launch(Operands(problem, shape, tuple(guarded.array for guarded in arrays), out.array))
    session.sync()
    got = out.array.get()
    wrong = bits(got) != bits(expected)
    problems = []
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        problems.append(
            f"{int(wrong.sum())} of {got.size} elements are wrong; the first is [{index}] = {got.flat[index]:.9g}, "
            f"expected {expected.flat[index]:.9g}"
        )
    broken = out.broken() + sum(guarded.broken() for guarded in arrays)
    if broken:
        problems.append(f"{broken} elements outside the arrays were overwritten")
    return Verdict(not problems, 0.0 if not wrong.any() else None, None, "; ".join(problems))
