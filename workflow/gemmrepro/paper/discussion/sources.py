"""The data behind the functions of a discussion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.text import anchor


@dataclass(frozen=True)
class Sources:
    """The family discussed, the measurements of every family, and the results of this one's experiments."""

    family: str
    measured: Mapping[str, Measurements]
    results: Mapping[str, Results] = field(default_factory=dict)

    def kernel(self, kernel_id: str) -> registry.Kernel | None:
        """The kernel, or None for a tunable that was never tuned for this GPU. Raises UserError for any other name."""
        try:
            return registry.kernel(kernel_id)
        except UserError:
            if any(kernel_id == tunable.id for tunable in registry.tunables()):
                return None
            raise

    def home(self, kernel_id: str) -> str:
        """The family whose rows hold a kernel. Raises UserError for an unknown name."""
        kernel = self.kernel(kernel_id)
        return kernel.family if kernel else _family_of(kernel_id)

    def link(self, kernel_id: str) -> str | None:
        """The anchor of a kernel's samples, if its family is on the page."""
        return f"samples-{anchor(kernel_id)}" if _family_of(kernel_id) in self.measured else None

    def cache(self) -> str:
        """The state of the cache that represents the family; warm for one that was not measured."""
        measured = self.measured.get(self.family)
        return measured.cache if measured else "warm"

    def gpu(self) -> dict[str, Any]:
        """The GPU's facts in run.json; ``this GPU`` and None for a family that was not measured."""
        measured = self.measured.get(self.family)
        facts = (measured.run.get("gpu") or {}) if measured else {}
        unknown = dict.fromkeys(("sm_count", "clock_max_mhz", "power_cap_w", "compute_capability"))
        return {"name": "this GPU", **unknown, **facts}


def _family_of(kernel_id: str) -> str:
    return kernel_id.split(".", 1)[0]
