"""How accurate schemes of FP64 multiplication are: no speed of one is ranked without its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import select
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.text import number

FAMILY, EXPERIMENT, DGEMM = "ozaki", "products", "cublas.gemm"
"""The experiment that compares every scheme and DGEMM with a product in higher precision."""

LAW, COLUMN = "normal", "err_fro"
"""The operands and the error that are compared: N(0, 1), and ‖C - C*‖ / ‖C*‖ in the Frobenius norm."""

TYPE = "fp64"
"""The input type of such schemes."""


@dataclass(frozen=True)
class ErrorView:
    """A scheme's relative Frobenius error on N(0, 1) and DGEMM's on the same operands; `anchor` is its row's id."""

    value: float
    dgemm: float
    size: int
    anchor: str

    @property
    def text(self) -> str:
        """The error: ``1.4e-15``."""
        return number(self.value, 2)

    @property
    def as_accurate(self) -> bool:
        """Whether it is at most DGEMM's."""
        return self.value <= self.dgemm


@dataclass(frozen=True)
class Accuracies:
    """The errors of all schemes, from the experiment's results, which may be missing."""

    results: Results | None

    @classmethod
    def of(cls, experiments: Mapping[str, Mapping[str, Results]]) -> Accuracies:
        """From every family's experiments."""
        return cls(experiments.get(FAMILY, {}).get(EXPERIMENT))

    def __call__(self, kernel: str, size: int) -> ErrorView | None:
        """A scheme's error at a size; None where it, or DGEMM's, was not measured there by today's build."""
        if self.results is None:
            return None
        rows = select(self.results.rows, n=size, law=LAW, status="current")
        rows = rows[rows[COLUMN].notna()]
        own, reference = select(rows, kernel=kernel), select(rows, kernel=DGEMM)
        if own.empty or reference.empty:
            return None
        row = own.iloc[0]
        place = experiment_row_anchor(FAMILY, EXPERIMENT, row.name)
        return ErrorView(float(row[COLUMN]), float(reference.iloc[0][COLUMN]), size, place)

    def dgemm(self, size: int) -> ErrorView | None:
        """DGEMM's own error."""
        return self(DGEMM, size)
