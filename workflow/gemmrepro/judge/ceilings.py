"""Upper limits of a GPU: measured by the family ``ceilings``, and computed from its clock and its cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.measure.rows import Measurements, is_current, row_key
from gemmrepro.operations import operation

CEILING_FAMILY = "ceilings"
"""The family whose micro-kernels measure ceilings."""

_UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s"}


@dataclass(frozen=True)
class Ceiling:
    """A measured ceiling: the best current row of one micro-kernel, or of its library baseline.
    `key` names the row; `clock_mhz` and `power_w` are its conditions."""

    kernel: str
    label: str
    value: float
    unit: str
    key: str
    clock_mhz: float | None
    power_w: float | None

    @property
    def conditions(self) -> str:
        """``1,980 MHz, 460 W``; what is unknown is left out."""
        parts = [
            f"{self.clock_mhz:,.0f} MHz" if self.clock_mhz else "",
            f"{self.power_w:,.0f} W" if self.power_w else "",
        ]
        return ", ".join(filter(None, parts))


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def of_operation(measured: Measurements, op: str, dtype: str | None = None) -> list[Ceiling]:
    """The measured ceilings of an operation, one per micro-kernel, the highest first.
    `op`: ``ceiling_flops`` (TFLOP/s, of kernels of `dtype`) or ``ceiling_bytes`` (GB/s, of any type)."""
    column = operation(op).ceiling
    unit = _UNITS[column]
    ceilings = []
    for kernel in registry.kernels(CEILING_FAMILY):
        if kernel.compute.op != op or (dtype and kernel.compute.dtype_in != dtype):
            continue
        rows = measured.summary
        rows = rows[rows["kernel"].isin([kernel.id, kernel.timing.baseline]) & is_current(rows) & rows[column].notna()]
        if rows.empty:
            continue
        row = rows.loc[rows[column].idxmax()]
        conditions = _number(row["clock_mhz"]), _number(row["power_w"])
        ceilings.append(Ceiling(kernel.id, kernel.rung, float(row[column]), unit, row_key(row), *conditions))
    return sorted(ceilings, key=lambda ceiling: -ceiling.value)


def measured_ceiling(measured: Measurements, kernel_id: str) -> Ceiling | None:
    """The ceiling that one micro-kernel measures, or None where it has no current row.
    Raises UserError if there is no such micro-kernel."""
    kernel = registry.kernel(kernel_id)
    if not operation(kernel.compute.op).ceiling:
        raise UserError(f"{kernel_id} measures no ceiling.")
    found = of_operation(measured, kernel.compute.op, kernel.compute.dtype_in)
    return next((ceiling for ceiling in found if ceiling.kernel == kernel_id), None)
