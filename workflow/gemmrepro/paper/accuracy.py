"""Kernels are compared with their baselines as equals if they add in its types, or err about as much as it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro import registry
from gemmrepro.core.dtypes import DTYPES
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import select
from gemmrepro.ozaki.inputs import complementary
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.text import number
from gemmrepro.recordings.limits import is_scheme

FAMILY, EXPERIMENT, DGEMM = "ozaki", "products", "cublas.gemm"
"""The experiment that compares schemes of FP64 and DGEMM with a product in higher precision."""

LAW, COLUMN = "normal", "err_fro"
"""The operands and the error that are compared: N(0, 1), and ‖C - C*‖ / ‖C*‖ in the Frobenius norm."""

TYPE = "fp64"
"""The input type of such schemes."""

ALLOWED = 1.5
"""How many times its baseline's error a kernel's may be, if their types of products or sums differ."""


def in_class(kernel: registry.Kernel) -> bool:
    """Whether its operands, products and sums have the types of an ordinary product.

    Sums of 8-bit floats are cut in the tensor core, so their type does not tell their error.
    """
    return not is_scheme(kernel) and DTYPES[kernel.compute.dtype_acc] >= 4 and DTYPES[kernel.compute.dtype_in] > 1


def bounds_elements(kernel: registry.Kernel) -> bool:
    """Whether each element has a digit where large elements meet only small ones; a bound by norms leaves none."""
    if kernel.promises.error is None:
        return True
    a, b = complementary(np.random.default_rng(0), 64, 64, 64)
    return bool(np.all(kernel.promises.error(a, b, np) < np.abs(a) @ np.abs(b)))


@dataclass(frozen=True)
class ErrorView:
    """A kernel's relative Frobenius error and its baseline's on the same operands, N(0, 1); `anchor` is a row's id."""

    value: float
    baseline: float
    anchor: str

    @property
    def text(self) -> str:
        """The error: ``1.4e-15``."""
        return number(self.value, 2)

    @property
    def is_like(self) -> bool:
        """Whether it is at most ALLOWED times the baseline's."""
        return self.value <= ALLOWED * self.baseline


@dataclass(frozen=True)
class Accuracies:
    """The errors of schemes of FP64, from the experiment's results, which may be missing."""

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
        return ErrorView(float(row[COLUMN]), float(reference.iloc[0][COLUMN]), place)

    def of_row(self, row: Mapping[str, Any], baseline: float | None, anchor: str) -> ErrorView | None:
        """The error of a measured row whose baseline errs by `baseline`; None where either is unknown.

        A sweep in FP64 has its baseline as reference, which then errs by 0. There the row has its difference from the
        baseline, which is no less than its error as long as the two err independently.
        """
        if row["dtype"] == TYPE:
            if exact := self(row["kernel"], row["n"]):
                return exact
            dgemm = self(DGEMM, row["n"])
            baseline = dgemm.value if dgemm else None
        return None if baseline is None else ErrorView(float(row[COLUMN]), baseline, anchor)
