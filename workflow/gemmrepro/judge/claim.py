"""A claim of an article, with its published rows looked up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmrepro.core.text import as_published, filled_in, format_number
from gemmrepro.measure.regimes import NOT_STATED

ARTICLE, LINKED, BUILD, PROJECT = "article", "linked", "build", "project"
"""The registers: what a claim is about."""

ANYWHERE = ("wrong", "latent fault")
"""The classes of corrections that hold on any GPU; of the others the statement may be found to hold."""


Problem = tuple[str, str]
"""The key of a claim that is wrong, and what is wrong with it."""


@dataclass(frozen=True)
class Claim:
    """One claim with its published rows (dicts of the columns of numbers.csv) looked up.
    `compute` holds its metric's keys (gemmrepro.judge.metrics). `published` is empty where the article gives no figure.
    `covered_by` is the id of the claim that judges the same in other units; `correction` the class of a wrong
    statement, what is true instead and how that is known; `regime` how the article measured. Within `within_factor` of
    the published value a claim is partly right; with `same_side` it has to lie on that value's side of 1. `throughput`
    is the published rate of a kernel whose ratio to a library is claimed."""

    id: str
    family: str
    article: str
    where: str
    statement: str
    published: tuple[Mapping[str, Any], ...]
    compute: Mapping[str, Any]
    transfer: Mapping[str, Any]
    within_factor: float
    same_side: bool
    toolkits: tuple[str, ...]
    cache: str
    tolerance: float | None = None
    register: str = ARTICLE
    covered_by: str | None = None
    correction: Mapping[str, Any] | None = None
    regime: str = NOT_STATED
    throughput: Mapping[str, Any] | None = None

    @property
    def metric(self) -> str:
        """The word for what is measured: a key of METRICS."""
        return str(self.compute["metric"])

    @property
    def kernels(self) -> tuple[str, ...]:
        """Ids of the kernels that the claim is computed from."""
        compute = self.compute
        if "by" in compute:
            return tuple(dict.fromkeys(filled_in(compute["kernel"], {"d": row["d"]}) for row in self.published))
        return tuple(compute.get("kernels") or [compute[key] for key in ("kernel", "over") if key in compute])

    @property
    def value(self) -> float | None:
        """The published figure to compare with; of a ratio or speed-up that two rows give, their quotient."""
        if not self.published:
            return None
        first = float(self.published[0]["value"])
        if not self.of_two:
            return first
        quotient = first / float(self.published[1]["value"])
        # Of two times, the quotient of speeds is the inverse; an experiment divides its column as the rows do.
        inverse = self.published[0]["metric"] == "time" and self.metric != "experiment"
        return 1 / quotient if inverse else quotient

    @property
    def unit(self) -> str:
        """The unit of `value`; '' where nothing is published."""
        if self.of_two:
            return "ratio"
        return str(self.published[0]["unit"]) if self.published else ""

    @property
    def figure(self) -> str:
        """`value` as text, without its unit: with the article's digits, a quotient with four."""
        if self.value is None:
            return ""
        return format_number(self.value, 4) if self.of_two else as_published(self.value)

    @property
    def figure_with_unit(self) -> str:
        """``309 GFLOP/s``; a quotient and a count have no unit."""
        return self.figure + ("" if self.unit in ("ratio", "count", "") else f" {self.unit}")

    @property
    def hardware(self) -> str:
        """The GPU that the article measured on; '' where nothing is published."""
        return str(self.published[0]["hardware"]) if self.published else ""

    @property
    def of_two(self) -> bool:
        """Whether its figure is the quotient of two published rows."""
        several = len(self.published) > 1 and self.tolerance is not None and "by" not in self.compute
        return several and self.metric not in ("order", "consistent")
