"""References for measurements: the GPU's ceilings, and the published figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gemmrepro import operations, registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import as_published, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge import ceilings
from gemmrepro.judge.published import published_rows
from gemmrepro.paper.discussion.live import UNKNOWN, Live
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.text import anchor
from gemmrepro.registry.ladders import dtypes


@dataclass(frozen=True)
class Reference:
    """Ceilings and published figures."""

    sources: Sources

    def ceiling(self, kernel: str) -> Live:
        """The ceiling that a micro-kernel of the family `ceilings` measures, in TFLOP/s or GB/s."""
        self.sources.kernel(kernel)  # an unknown name is an error
        measured = self.sources.measured.get(ceilings.CEILING_FAMILY)
        ceiling = ceilings.measured_ceiling(measured, kernel) if measured else None
        if ceiling is None:
            return UNKNOWN
        known = "" if ceiling.key.startswith(f"{ceilings.CEILING_FAMILY}.") else f"{ceilings.CEILING_FAMILY}/"
        link = anchor(f"row {known}{ceiling.key}") if self.sources.link(kernel) else None
        return Live(f"{format_number(ceiling.value)} {ceiling.unit}", ceiling.value, link)

    def peak(self, dtype: str | None = None, clock: Live | float | None = None) -> Live:
        """The computed peak of the GPU's cores in TFLOP/s, at its highest clock or at `clock` (MHz)."""
        facts = self.sources.gpu()
        if isinstance(clock, Live):
            if not clock.known:
                return UNKNOWN
            clock = clock.value
        if clock:
            facts["clock_max_mhz"] = clock
        peak = ceilings.computed_peak(facts, dtype or next(iter(dtypes(self.sources.family)), "fp32"))
        return Live(f"{format_number(peak[0])} TFLOP/s", peak[0]) if peak else UNKNOWN

    def waves(self, kernel: str, n: int = SIZE) -> Live:
        """Waves of a kernel's output tiles at a size: tiles divided by SMs, with one tile at a time on each."""
        known, sms = self.sources.kernel(kernel), self.sources.gpu().get("sm_count")
        code = known.at(operations.Shape.cube(n)) if known else None
        if not code or not sms or not {"bm", "bn"} <= set(code.params):
            return UNKNOWN
        tiles = math.ceil(n / code.params["bm"]) * math.ceil(n / code.params["bn"])
        return Live(format_number(tiles / sms), tiles / sms)

    def published(
        self, system: str, metric: str = "ratio_to_cublas", n: int = SIZE, article: str = "", **where: Any
    ) -> Live:
        """A figure of the family's article or of another, throughput in TFLOP/s.

        `where` gives more columns of published.csv (`d`, `dtype`, `table`) where the others match several rows.

        Raises:
            UserError: no row of published.csv matches, or several do.
        """
        article = article or registry.family(self.sources.family).article or ""
        wanted = {"article": article, "system": system, "metric": metric, "n": n, **where}
        rows = [row for row in published_rows() if all(row[key] == value for key, value in wanted.items())]
        if len(rows) != 1:
            question = ", ".join(map(str, (system, metric, n, *where.values())))
            raise UserError(f"published.csv has {len(rows)} rows of {article}: {question}; name one.")
        value = rows[0]["value"]
        if rows[0]["unit"] == "GFLOP/s":
            return Live(f"{format_number(value / 1e3)} TFLOP/s", value / 1e3, printed=True)
        return Live(as_published(value), value, printed=True)
