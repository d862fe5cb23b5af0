"""The libraries that kernels are compared with: their rows, samples, and the GPU kernels that they launched."""

from __future__ import annotations

from dataclasses import dataclass

from gemmrepro import registry
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.rows import RowView, row_view, samples_by_row, times_of
from gemmrepro.paper.text import anchor


@dataclass(frozen=True)
class BaselineRows:
    """What one family timed of a baseline; `ran` pairs a size or type with the GPU kernel that was launched."""

    family: str
    rows: tuple[RowView, ...]
    ran: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BaselinePage:
    """A baseline in every family that timed it."""

    id: str
    anchor: str
    families: tuple[BaselineRows, ...]


def baseline_pages(inputs: Inputs) -> list[BaselinePage]:
    """Every baseline with rows, by name."""
    known = {kernel.id for name in inputs.families for kernel in registry.kernels(name)}
    found: dict[str, list[BaselineRows]] = {}
    for family, measured in inputs.measured.items():
        rows = measured.summary[~measured.summary["kernel"].isin(known)]
        if rows.empty:
            continue
        samples = samples_by_row(measured)
        ran = sorted((measured.run.get("baseline_kernels") or {}).items())
        for name, own in rows.groupby("kernel", sort=True):
            own = own.sort_values(["dtype", "m", "n", "k", "cache", "toolkit"], kind="stable")
            found.setdefault(str(name), []).append(
                BaselineRows(
                    family=family,
                    rows=tuple(row_view(row, times_of(samples, row), inputs.ceilings) for _, row in own.iterrows()),
                    ran=tuple((key, str(value)) for key, value in ran if key.split()[0] == name),
                )
            )
    return [BaselinePage(name, anchor(name), tuple(found[name])) for name in sorted(found)]
