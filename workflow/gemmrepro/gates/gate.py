"""What the numerical gate of an operation is: cases to launch and judge, and the judgement of one result."""

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
    """A case, its verdict, and the bound on the relative error that it was held to."""

    case: Case
    verdict: Verdict
    gamma: float

    def record(self) -> dict[str, Any]:
        """As the gate's JSON has it."""
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
    """How results of one operation are judged. An object judges many kernels and may keep what they share.

    A verdict is filed by the code that the class reaches (`keys.protocol`).
    """

    @abstractmethod
    def cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        """Launch every case of `kernel` for each of `seeds`, and judge it.

        Raises:
            UserError: a launch broke the GPU's context.
        """

    def large_cases(
        self, session: device.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
    ) -> Iterator[Judged]:
        """The cases that fill the GPU, where a race shows; all cases unless the gate knows better."""
        return self.cases(session, kernel, launch, seeds)

    def reference(self, operands: Operands) -> Any:
        """What `judge` compares with and kernels on the same operands share; None by default."""
        return None

    @abstractmethod
    def judge(self, operands: Operands, reference: Any, kernel: Kernel | None = None) -> Verdict:
        """Judge what one launch left in the output of `operands`, on the GPU.

        Args:
            reference: of the same operands.
            kernel: whose result it is; None for a library's.
        """
