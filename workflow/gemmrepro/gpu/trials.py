"""Which of cuBLAS's algorithms a baseline takes: chosen once for a problem and shape, and kept by the session."""

from __future__ import annotations

from gemmrepro.operations import Problem, Shape

FAST = "cublas.gemm_fast"
"""The baseline that leaves sums of 8-bit floats in the tensor core; it chooses among algorithms of its own."""

TRIAL_MS = 800.0
"""How long a trial of all algorithms lasts at most."""


class Trials:
    """What the trials of one session chose, and how long one may last.

    An algorithm is its index in the list that `gemmrepro.gpu.baselines` makes for the problem: cublasGemmEx where it
    knows the types, then the candidates of cublasLt's heuristic. Every process that asks the heuristic the same gets
    the same list.
    """

    def __init__(self) -> None:
        self.milliseconds = TRIAL_MS
        self._chosen: dict[tuple[Problem, Shape, bool], int] = {}

    def limit(self, seconds: float) -> None:
        """Have a trial last no longer than `seconds`, for a sweep that is in a hurry."""
        self.milliseconds = min(TRIAL_MS, 1000.0 * seconds)

    def algorithm(self, problem: Problem, shape: Shape, name: str = "cublas.gemm") -> int | None:
        """Which algorithm the baseline `name` takes here; None where none was tried yet."""
        return self._chosen.get((problem, shape, name == FAST))

    def take(self, problem: Problem, shape: Shape, algorithm: int, name: str = "cublas.gemm") -> None:
        """Have the baseline `name` take the algorithm that a trial chose, perhaps of an earlier process.

        One sweep thus compares with one and the same.
        """
        self._chosen[problem, shape, name == FAST] = algorithm
