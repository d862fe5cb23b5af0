"""The cuBLAS algorithm of a baseline: chosen once per problem and shape, and kept by the session."""

from __future__ import annotations

from gemmrepro.operations import Problem, Shape

FAST = "cublas.gemm_fast"
"""The baseline with fast accumulation of 8-bit floats."""

HALF_SUMS = "cublas.gemm_half_sums"
"""The baseline that accumulates fp16 in fp16."""

FUSED = "cublas.gemm_gelu_bias"
"""The baseline with GELU and a bias in its epilogue."""

OWN_LISTS = (FAST, HALF_SUMS, FUSED)
"""Baselines with lists of algorithms of their own."""

TRIAL_MS = 800.0
"""Maximum duration of a trial of all algorithms."""


class Trials:
    """The algorithms that a session's trials chose, and the maximum duration of a trial.

    An algorithm is an index into the list that `gemmrepro.gpu.baselines` makes for the problem: cublasGemmEx if it
    supports the types, then the candidates of cublasLt's heuristic. The heuristic returns the same list in every
    process.
    """

    def __init__(self) -> None:
        self.milliseconds = TRIAL_MS
        self._chosen: dict[tuple[Problem, Shape, str], int] = {}

    def limit(self, seconds: float) -> None:
        """Limit the duration of a trial to `seconds`, for a quick sweep."""
        self.milliseconds = min(TRIAL_MS, 1000.0 * seconds)

    def algorithm(self, problem: Problem, shape: Shape, name: str = "cublas.gemm") -> int | None:
        """The algorithm of the baseline `name` for this problem and shape; None before its trial."""
        return self._chosen.get((problem, shape, name if name in OWN_LISTS else ""))

    def take(self, problem: Problem, shape: Shape, algorithm: int, name: str = "cublas.gemm") -> None:
        """Set the algorithm of the baseline `name` to the winner of a trial, perhaps in an earlier process.

        A sweep that continues thus keeps its baseline.
        """
        self._chosen[problem, shape, name if name in OWN_LISTS else ""] = algorithm
