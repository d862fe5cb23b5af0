"""Renders a family's discussion, ``kernels/<family>/discussion.html.j2``: prose whose numbers are read from the rows.

A fragment is HTML with Jinja2. Its functions answer with a `Live` number: rendered, it is a link to the samples behind
it, struck out where its row is stale, and "not measured" where there is none; compared in a condition, it is the
number, and an unknown one is neither above nor below anything. So a sentence about a direction stands in an ``if``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from gemmrepro import experiments, operations, registry
from gemmrepro.core import paths
from gemmrepro.core.names import LIBRARY, SIZE
from gemmrepro.core.paths import ROOT
from gemmrepro.core.text import as_published, format_number, in_words, listed
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.judge import ceilings
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, is_current, select, toolkit_of
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import compared, dtypes, is_tuned, level_name, twins

FILE = "discussion.html.j2"


@dataclass(frozen=True)
class Live:
    """A number in the text: how it reads, what it is, and where its samples are. Unknown without a value."""

    text: str = ""
    value: float | None = None
    link: str | None = None
    stale: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a number that the text may rest on."""
        return self.value is not None and not self.stale

    def __html__(self) -> str:
        if self.value is None:
            return '<span class="muted">not measured</span>'
        text = escape(self.text)
        text = f'<a href="#{self.link}">{text}</a>' if self.link else text
        return f'<s class="stale">{text}</s><span class="flag">stale</span>' if self.stale else text

    def __str__(self) -> str:
        return self.__html__()

    def _compare(self, other: Any, test: Callable[[float, float], bool]) -> bool:
        if isinstance(other, Live):
            return self.known and other.known and test(self.value, other.value)
        return self.known and test(self.value, float(other))

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: a >= b)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, lambda a, b: a <= b)


UNKNOWN = Live()


def _with(value: float, unit: str) -> str:
    return format_number(value) + ("" if not unit else unit if unit == "%" else f" {unit}")


class Numbers:
    """What a fragment may ask for. Sizes are of cubes; rows are warm and by the toolkit that stands for the family."""

    def __init__(
        self,
        family: str,
        measured: Mapping[str, Measurements],
        anchor: Callable[[str], str],
        results: Mapping[str, Results] | None = None,
    ) -> None:
        self.family, self._measured, self._anchor = family, measured, anchor
        self._results = results or {}

    def functions(self) -> dict[str, Any]:
        """The names that a fragment sees."""
        return {
            "tflops": self.tflops,
            "ratio": self.ratio,
            "speedup": self.speedup,
            "ahead": self.ahead,
            "clock": self.clock,
            "power": self.power,
            "counter": self.counter,
            "experiment": self.experiment,
            "ceiling": self.ceiling,
            "peak": self.peak,
            "published": self.published,
            "number": self.number,
            "listed": lambda words: listed([*map(str, words)]),
            "percent": lambda part: Live(f"{100 * part:.0f}%", float(part)),
            "quotient": self.quotient,
            "product": self.product,
            "share": self.share,
            "waves": self.waves,
            "gpu": self._gpu(),
            "level": self.level,
            "registered": lambda kernel: any(kernel == each.id for each in registry.kernels()),
            "idea": lambda kernel: self._kernel(kernel).idea,
            "steps": self.steps,
            "past_article": self.past_article,
            "last": self.last,
            "before": self.before,
            "tuned": self.tuned,
            "constants": self.constants,
            "size": SIZE,
        }

    # What there is.

    def _kernel(self, kernel_id: str) -> registry.Kernel | None:
        """The kernel, or None for a tunable that was never tuned for this GPU. Raises UserError for any other name."""
        try:
            return registry.kernel(kernel_id)
        except UserError:
            if any(kernel_id == tunable.id for tunable in registry.tunables()):
                return None
            raise

    def _place(self, kernel_id: str) -> tuple[str, str]:
        """(family, dtype) whose rows hold a kernel; a baseline's are in this family."""
        kernel = self._kernel(kernel_id)
        return (kernel.family, kernel.dtype_in) if kernel else (kernel_id.split(".", 1)[0], "")

    def _link(self, kernel_id: str) -> str | None:
        family = kernel_id.split(".", 1)[0]
        return f"samples-{self._anchor(kernel_id)}" if family in self._measured else None

    def _gpu(self) -> dict[str, Any]:
        measured = self._measured.get(self.family)
        facts = (measured.run.get("gpu") or {}) if measured else {}
        unknown = dict.fromkeys(("sm_count", "clock_max_mhz", "power_cap_w", "compute_capability"))
        return {"name": "this GPU", **unknown, **facts}

    def steps(self, dtype: str | None = None) -> list[str]:
        """Ids of the family's steps in a type (its first)."""
        return [kernel.id for kernel in ladders.steps(self.family, dtype)]

    def past_article(self) -> list[str]:
        """Ids of the steps behind the last one that the article gives a figure for."""
        everything = ladders.steps(self.family)
        named = [place for place, kernel in enumerate(everything) if kernel.published_system]
        return [kernel.id for kernel in everything[(named[-1] + 1 if named else 0) :]]

    def last(self, dtype: str | None = None) -> str:
        """The id of the last step that was timed, or of the last of all where none was."""
        found = self.steps(dtype)
        if not found:
            raise UserError(f"the family {self.family} has no step in {dtype or 'any type'}.")
        timed = set(self._measured[self.family].summary["kernel"]) if self.family in self._measured else set()
        return ([each for each in found if each in timed] or found)[-1]

    def before(self, kernel: str) -> str | None:
        """The id of what a kernel's gain is a gain over."""
        found = self._kernel(kernel)
        earlier = ladders.before(found) if found else None
        return earlier.id if earlier else None

    def tuned(self, kernel: str) -> str | None:
        """The id of the same source with constants found by tuning, if there is one."""
        found = self._kernel(kernel)
        return next((each.id for each in twins(found) if is_tuned(each)), None) if found else None

    def constants(self, kernel: str) -> str:
        """How a tuned kernel's constants differ from those of its step: ``BK 16 → 8, WM 64 → 32``."""
        found = self._kernel(kernel)
        earlier = ladders.before(found) if found else None
        if not found or not earlier:
            return ""
        changes = [
            f"{name.upper()} {earlier.params.get(name, 'none')} \N{RIGHTWARDS ARROW} {value}"
            for name, value in found.params.items()
            if earlier.params.get(name) != value
        ]
        return ", ".join(changes) or "the same"

    def level(self, kernel: str) -> Markup:
        """A kernel's name, linked to its section."""
        found = self._kernel(kernel)
        if found is None:
            return Markup("<code>{}</code>").format(kernel)
        if found.family not in self._measured:
            return Markup("{}").format(level_name(found))
        return Markup('<a href="#{}">{}</a>').format(self._anchor(found.id), level_name(found))

    # Numbers from rows.

    def _row(self, kernel: str, n: int, cache: str, dtype: str | None) -> tuple[pd.Series | None, str | None]:
        """The row of a kernel, or of a baseline in a type, and the anchor of its samples."""
        baselines = {each.baseline for each in compared(self.family)}
        if kernel in baselines:
            family, toolkit, link = self.family, LIBRARY, f"rows-{self._anchor(self.family)}"
            dtype = dtype or next(iter(dtypes(self.family)))
        else:
            family, dtype = self._place(kernel)
            link = self._link(kernel)
            toolkit = toolkit_of(self._measured[family]) if family in self._measured else None
        if family not in self._measured:
            return None, None
        rows = select(self._measured[family].summary, kernel=kernel, toolkit=toolkit, cache=cache, m=n, n=n, k=n)
        rows = select(rows, dtype=dtype) if dtype else rows
        return (rows.iloc[-1] if len(rows) else None), link

    def _cell(
        self, column: str, write: Callable[[float], str], kernel: str, n: int, cache: str, dtype: str | None = None
    ) -> Live:
        row, link = self._row(kernel, n, cache, dtype)
        if row is None or pd.isna(row[column]):
            return UNKNOWN
        value = float(row[column])
        return Live(write(value), value, link, row["status"] == "stale")

    def tflops(self, kernel: str, n: int = SIZE, cache: str = "warm", dtype: str | None = None) -> Live:
        """Throughput of a kernel, or of the family's baseline (in `dtype`)."""
        return self._cell("tflops", lambda x: f"{format_number(x)} TFLOP/s", kernel, n, cache, dtype)

    def ratio(self, kernel: str, n: int = SIZE, cache: str = "warm") -> Live:
        """Speed relative to the baseline."""
        return self._cell("ratio", format_number, kernel, n, cache)

    def clock(self, kernel: str, n: int = SIZE, cache: str = "warm", dtype: str | None = None) -> Live:
        """SM clock while it ran, in MHz."""
        return self._cell("clock_mhz", lambda x: f"{x:,.0f} MHz", kernel, n, cache, dtype)

    def power(self, kernel: str, n: int = SIZE, cache: str = "warm", dtype: str | None = None) -> Live:
        """Power while it ran, in W."""
        return self._cell("power_w", lambda x: f"{x:,.0f} W", kernel, n, cache, dtype)

    def speedup(self, kernel: str, over: str, n: int = SIZE, cache: str = "warm") -> Live:
        """How many times faster a kernel is than another.

        Of two that solve the same problem beside the same baseline, by their ratios to it: each was timed in turn with
        the baseline, so a clock that changes between the two cancels, as it does not in times.
        """
        one, other = self._kernel(kernel), self._kernel(over)
        in_turn = one and other and one.baseline and (one.problem, one.baseline) == (other.problem, other.baseline)
        measure = self.ratio if in_turn else self.tflops
        found = self.quotient(measure(kernel, n, cache), measure(over, n, cache))
        return Live(f"{found.text} times", found.value, found.link, found.stale) if found.value else found

    def ahead(self, kernel: str, over: str, n: int = SIZE, cache: str = "warm") -> int:
        """Whether the intervals of two ratios to one baseline part: 1 if the kernel's lies above, -1 below, else 0."""
        rows = [self._row(name, n, cache, None)[0] for name in (kernel, over)]
        if any(row is None or row["status"] == "stale" or pd.isna(row["ratio_ci_low"]) for row in rows):
            return 0
        one, other = rows
        if one["baseline"] != other["baseline"]:
            return 0
        return int(one["ratio_ci_low"] > other["ratio_ci_high"]) - int(one["ratio_ci_high"] < other["ratio_ci_low"])

    def counter(self, kernel: str, metric: str, n: int = SIZE) -> Live:
        """A hardware counter of one launch."""
        family, _ = self._place(kernel)
        if family not in self._measured:
            return UNKNOWN
        measured = self._measured[family]
        rows = select(measured.counters, kernel=kernel, toolkit=toolkit_of(measured), metric=metric, m=n, n=n, k=n)
        rows = rows[rows["value"].notna()]
        if rows.empty:
            return UNKNOWN
        current = rows[is_current(rows)]
        row = (current if len(current) else rows).iloc[-1]
        value = float(row["value"])
        return Live(in_words(value, row["unit"]), value, self._link(kernel), row["status"] == "stale")

    def experiment(self, name: str, column: str, kernel: str, unit: str = "", digits: int = 2, **where: Any) -> Live:
        """A cell of one of the family's experiments: the row of a kernel or library whose columns are as `where` says.

        Raises:
            UserError: there is no such experiment or column, or several rows are meant.
        """
        if name not in self._results:
            experiments.experiment(self.family, name)  # a name that is not declared is an error
            return UNKNOWN
        results = self._results[name]
        for asked in (column, *where):
            results.experiment.column(asked)
        rows = results.of(kernel, results.toolkit, **where)
        rows = rows[rows[column].notna()]
        if rows.empty:
            return UNKNOWN
        if len(rows) > 1:
            raise UserError(f"the experiment {name} has {len(rows)} rows of {kernel} where {where}; name one.")
        row = rows.iloc[0]
        link = f"experiment-{self._anchor(f'{self.family}.{name}')}"
        if results.experiment.column(column).kind == "text":
            return Live(str(row[column]), math.nan, link, row["status"] == "stale")
        value = float(row[column])
        text = f"{value:.0f}" if value == round(value) and abs(value) < 1e4 else format_number(value, digits)
        return Live(f"{text}{f' {unit}' if unit else ''}", value, link, row["status"] == "stale")

    def ceiling(self, kernel: str) -> Live:
        """What a micro-kernel of the family `ceilings` reaches, in TFLOP/s or GB/s."""
        self._kernel(kernel)
        if ceilings.FAMILY not in self._measured:
            return UNKNOWN
        found = ceilings.measured_ceiling(self._measured[ceilings.FAMILY], kernel)
        if found is None:
            return UNKNOWN
        return Live(f"{format_number(found.value)} {found.unit}", found.value, self._link(kernel))

    def peak(self, dtype: str | None = None, clock: Live | float | None = None) -> Live:
        """TFLOP/s that the GPU's cores add up to, at its highest clock or at another one, in MHz."""
        facts = dict(self._gpu())
        if isinstance(clock, Live):
            if not clock.known:
                return UNKNOWN
            clock = clock.value
        if clock:
            facts["clock_max_mhz"] = clock
        found = ceilings.computed_peak(facts, dtype or next(iter(dtypes(self.family)), "fp32"))
        return Live(f"{format_number(found[0])} TFLOP/s", found[0]) if found else UNKNOWN

    def waves(self, kernel: str, n: int = SIZE) -> Live:
        """Output tiles of a kernel at a size, divided by the multiprocessors, each of which takes one at a time."""
        named, sms = self._kernel(kernel), self._gpu().get("sm_count")
        found = named and named.at(operations.Shape.cube(n))
        if not found or not sms or not {"bm", "bn"} <= set(found.params):
            return UNKNOWN
        tiles = math.ceil(n / found.params["bm"]) * math.ceil(n / found.params["bn"])
        return Live(format_number(tiles / sms), tiles / sms)

    # Numbers from print, and arithmetic.

    def published(
        self, system: str, metric: str = "ratio_to_cublas", n: int = SIZE, article: str = "", **where: Any
    ) -> Live:
        """A figure of the family's article or of another, throughput in TFLOP/s.

        `where` gives more columns of published.csv (`d`, `dtype`, `table`) where the others match several rows.

        Raises:
            UserError: the article prints no such figure.
        """
        article = article or registry.family(self.family).article
        wanted = {"article": article, "system": system, "metric": metric, "n": n, **where}
        rows = [row for row in published_rows() if all(row[key] == value for key, value in wanted.items())]
        if len(rows) != 1:
            asked = ", ".join(map(str, (system, metric, n, *where.values())))
            raise UserError(f"published.csv has {len(rows)} rows of {article}: {asked}; name one.")
        value = rows[0]["value"]
        if rows[0]["unit"] == "GFLOP/s":
            return Live(f"{format_number(value / 1e3)} TFLOP/s", value / 1e3)
        return Live(as_published(value), value)

    def number(self, value: float, unit: str = "", digits: int = 3) -> Live:
        """A number that the text itself gives, such as one of a data sheet."""
        return Live(f"{format_number(value, digits)}{f' {unit}' if unit else ''}", float(value))

    def _combined(self, numbers: Sequence[Live], value: Callable[[], float], write: Callable[[float], str]) -> Live:
        if any(each.value is None for each in numbers):
            return UNKNOWN
        result = value()
        link = next((each.link for each in numbers if each.link), None)
        return Live(write(result), result, link, any(each.stale for each in numbers))

    def quotient(self, a: Live, b: Live, unit: str = "") -> Live:
        """a / b, which must be in the same unit, unless `unit` names that of the quotient."""
        if b.value == 0:
            return UNKNOWN
        return self._combined((a, b), lambda: a.value / b.value, lambda x: _with(x, unit))

    def product(self, a: Live, b: Live, unit: str = "", scale: float = 1.0) -> Live:
        """a b scale."""
        return self._combined((a, b), lambda: a.value * b.value * scale, lambda x: _with(x, unit))

    def share(self, a: Live, b: Live) -> Live:
        """a / b, written in per cent; its value is the quotient."""
        if b.value == 0:
            return UNKNOWN
        return self._combined((a, b), lambda: a.value / b.value, lambda x: f"{100 * x:.0f}%")


def render(
    family: str,
    measured: Mapping[str, Measurements],
    anchor: Callable[[str], str],
    results: Mapping[str, Results] | None = None,
) -> Markup | None:
    """The family's discussion as HTML, or None where it has none; `results` are its experiments'.

    Raises:
        UserError: the fragment is not a template, or names what there is not.
    """
    path = paths.KERNELS_DIR / family / FILE
    if not path.is_file():
        return None
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    try:
        text = environment.from_string(path.read_text()).render(Numbers(family, measured, anchor, results).functions())
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{where}, line {error.lineno}: {error.message}.") from None
    except (jinja2.TemplateError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: {error}; see gemmrepro.discussion for what a fragment may ask.") from None
    return Markup(text.strip())
