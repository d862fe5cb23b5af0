"""The interface of an operation's numerical gate: its cases, and the judgement of one result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro.gates.compare import Verdict
from gemmrepro.gpu import device
from gemmrepro.operands import Launcher, Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel


@dataclass(frozen=True)
class Case:
    """One launch to judge. `inputs` names how they are drawn; the seed makes it reproducible."""

    shape: Shape
    alpha: float
    beta: float
    inputs: str
    seed: int


@dataclass(frozen=True)
class Judged:
    """A case, its verdict, and the bound (gamma) on its relative error."""

    case: Case
    verdict: Verdict
    gamma: float

    def record(self) -> dict[str, Any]:
        """The case as in the gate's JSON."""
        case, worst = self.case, self.verdict.err_scaled_max
        return {
            "shape": [case.shape.m, case.shape.n, case.shape.k],
            "alpha": case.alpha,
            "beta": case.beta,
            "inputs": case.inputs,
            "seed": case.seed,
            "err_scaled_max": None if worst is None else float(f"{worst:.4g}"),
            "gamma": float(f"{self.gamma:.4g}"),
            "passed": self.verdict.passed,
            "message": self.verdict.message,
        }


class Gate(ABC):
    """How results of one operation are judged. An instance may cache what the kernels it judges share.

    The code that a subclass reaches is part of the gate key (`keys.protocol`).
    """

    @abstractmethod
    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        """Launch every case of `kernel` for each of `seeds`, and judge it.

        Raises:
            UserError: a launch corrupted the GPU's context.
        """

    def large_cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        """The cases that fill the GPU, where a race shows; all cases unless the gate knows better."""
        return self.cases(session, kernel, launch, seeds)

    def reference(self, operands: Operands) -> Any:
        """The reference for `judge`, which kernels on the same operands share; None by default."""
        return None

    @abstractmethod
    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """Judge the output of one launch on `operands`, on the GPU.

        Args:
            reference: the result of `reference` for these operands.
            kernel: the kernel that was launched; None for a library.
        """
