"""How many kernels the GPU behind the report can run, and what the others need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemmrepro import registry
from gemmrepro.measure.rows import Measurements, capability_of
from gemmrepro.registry.requirements import tally


@dataclass(frozen=True)
class Runnable:
    """How many of all kernels the GPU can run, and what the others need, each with its count; none if all run."""

    kernels: int
    run: int
    reasons: Mapping[str, int]

    @property
    def lines(self) -> list[str]:
        """A line for each reason: "63 need Hopper (sm_90a)"."""
        return [f"{count} need{'s' if count == 1 else ''} {needs}" for needs, count in self.reasons.items()]


def runnable(families: Iterable[str], measured: Iterable[Measurements]) -> Runnable:
    """What the GPU behind `measured` can run of the registered kernels of `families`."""
    kernels, capability = [kernel for name in families for kernel in registry.kernels(name)], capability_of(measured)
    counts = dict(tally(kernels, capability)) if capability else {"": len(kernels)}
    return Runnable(len(kernels), counts.pop("", 0), counts)
