"""Renders ``kernels/<family>/findings.md``: what was found on the reference GPU, in Markdown.

The text is about the committed recording of that GPU, whatever GPU the report is about. A number in it is a reference
in braces to one cell of the recording, or a quotient of two:

    {ratio ladder.warptile 4096}                          a column of summary.csv, of a kernel or library at M = N = K
    {sustained.ratio hopper.by_size 8192}                 the same in a regime
    {counters.dram__bytes.sum ladder.smem 4096}           a hardware counter
    {latency.cycles ceilings.walk_global level=L2}        a column of an experiment of the family
    {published.ratio_to_cublas "L7 warptile" 4096}        a metric of the numbers.csv of the family's article
    {tflops ladder.warptile 4096 / tflops ceilings.ffma}  a quotient

``column=value`` selects further; of several rows, those by the toolkit of most kernels and with a warm cache are meant.
A number is a link where the report shows the same row with the same value. A paragraph that begins with ``Table:`` is
the caption of the table below it; a block quote at the top is the family's sentence for the abstract.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.files import read_json
from gemmrepro.core.names import REFERENCE, TOOLKITS
from gemmrepro.core.text import as_published, format_number, in_words
from gemmrepro.errors import UserError
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.columns import REGIME_COLUMNS, REGIME_POINT
from gemmrepro.measure.regimes import REGIMES
from gemmrepro.paper.text import counter_anchor, experiment_row_anchor, row_anchor
from gemmrepro.registry.articles import NUMBERS, folder

FILE = "findings.md"

NUMBER = re.compile(r"\{([^{}]*)\}")

_ABSTRACT = re.compile(r"\A((?:>[^\n]*\n)+)")
_TABLE = re.compile(r"<p>Table: (.*?)</p>\s*<table>(.*?)</table>", re.DOTALL)

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")

Rows = Mapping[str, Mapping[str, Any]]
"""The rows that the report shows, by their ids."""


@dataclass(frozen=True)
class Findings:
    """A family's text as HTML, and its sentence for the abstract."""

    text: Markup
    abstract: Markup


@dataclass(frozen=True)
class Number:
    """A number of the text; `rows` are the ids of the report's rows that hold it, if the report shows them all."""

    text: str
    value: float
    rows: tuple[str, ...] = ()
    printed: bool = False
    formula: str = ""

    def html(self, reference: str) -> str:
        text = escape(self.text)
        if self.rows:
            how = f' data-formula="{escape(self.formula)}" data-from="{" ".join(self.rows)}"' if self.formula else ""
            name = escape(f"{self.text}, {' '.join(reference.split())}")
            return f'<a href="#{self.rows[0]}"{how} aria-label="{name}">{text}</a>'
        return f"<span data-{'published' if self.printed else 'recorded'}>{text}</span>"


def reference_gpu() -> str:
    """The name of the GPU that the texts are about."""
    runs = sorted((paths.RECORDINGS / REFERENCE).glob("*/run.json"))
    if not runs:
        raise UserError(f"{paths.RECORDINGS / REFERENCE} has no recording; restore it from the repository.")
    return str(read_json(runs[0], "the recording", "restore it from the repository")["gpu"]["name"])


def render(family: str, shown: Rows) -> Findings | None:
    """The family's findings; None where it has none.
    Raises UserError, with its place, if a reference does not name exactly one cell of the recording."""
    path = paths.KERNELS_DIR / family / FILE
    if not path.is_file():
        return None
    try:
        text, marked = _marked(path.read_text(), family, shown)
    except UserError as error:
        raise UserError(f"kernels/{family}/{FILE}, {error}") from None
    quote = _ABSTRACT.match(text)
    said = " ".join(line.lstrip("> ") for line in quote[1].splitlines()) if quote else ""
    body = _MARKDOWN.render(text[quote.end() :] if quote else text)
    return Findings(marked(_TABLE.sub(_table, body)), marked(_MARKDOWN.renderInline(said)))


def told(text: str, family: str, shown: Rows) -> Markup:
    """A sentence or two in Markdown about a family's recording, with its numbers. Raises UserError as `render` does."""
    with_marks, marked = _marked(text, family, shown)
    return marked(_MARKDOWN.renderInline(with_marks))


def _marked(source: str, family: str, shown: Rows) -> tuple[str, Callable[[str], Markup]]:
    """The text with a mark for each number, and what puts the numbers in the place of the marks."""
    numbers: list[str] = []

    def mark(match: re.Match[str]) -> str:
        try:
            numbers.append(number(match[1], family, shown).html(match[1]))
        except UserError as error:
            line = source.count("\n", 0, match.start()) + 1
            raise UserError(f"line {line}: {match[0]}: {error}") from None
        return f"\ue000{len(numbers) - 1}\ue000"

    def marked(text: str) -> Markup:
        return Markup(re.sub("\ue000(\\d+)\ue000", lambda match: numbers[int(match[1])], text))

    return NUMBER.sub(mark, source), marked


def _table(match: re.Match[str]) -> str:
    """A table as the report's other tables are: with a caption, scrollable, its rows named by their first cells."""
    caption, rows = match[1], match[2].replace(' style="text-align:left"', "")
    rows = rows.replace(' style="text-align:right"', ' class="n"').replace("<th></th>", "<td></td>")
    rows = re.sub(r"(<tr>\n)<td>(.+?)</td>", r'\1<th scope="row">\2</th>', rows)
    rows = re.sub(r'<th( class="n")?>', r'<th scope="col"\1>', rows)
    label = re.sub("<[^<>]+>|\ue000\\d+\ue000", "", caption)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">\n<table>\n'
        f"<caption><span>{caption}</span></caption>{rows}</table>\n</div>"
    )


def number(reference: str, family: str, shown: Rows) -> Number:
    """The number that a reference in a family's text stands for.
    Raises UserError if it does not name exactly one cell, or two numbers."""
    terms = [_cell(term, family, shown) for term in reference.split(" / ")]
    if len(terms) == 1:
        return terms[0]
    if len(terms) != 2 or not terms[1].value:
        raise UserError("a quotient is of two numbers, and not by zero.")
    first, second = terms
    value = first.value / second.value
    rows = (*first.rows, *second.rows) if all(term.rows or term.printed for term in terms) else ()
    printed = first.printed and second.printed
    return Number(format_number(value), value, rows, printed, f"{first.text} \N{DIVISION SIGN} {second.text}")


def _cell(term: str, family: str, shown: Rows) -> Number:
    """One cell of the recording, or of what the article prints."""
    try:
        words = shlex.split(term)
    except ValueError as error:
        raise UserError(f"{error}.") from None
    named = [word for word in words if "=" not in word]
    if not 2 <= len(named) <= 3:
        raise UserError("a reference is a column, a kernel, perhaps a size, and column=value.")
    asked = {"n": named[2]} if len(named) == 3 else {}
    asked |= dict(word.split("=", 1) for word in words if "=" in word)
    table, dot, column = named[0].partition(".")
    table, column = (table, column) if dot else ("summary", table)
    if table == "published":
        article = asked.pop("article", registry.family(family).article or "")
        found = _row(folder(article) / NUMBERS, "value", {"system": named[1], "metric": column, **asked})
        return Number(as_published(float(found["value"])), float(found["value"]), printed=True)
    recording = paths.RECORDINGS / REFERENCE
    asked = {"kernel": named[1], **asked}
    if table not in ("summary", "counters", *REGIMES):
        row = _row(recording / family / "experiments" / f"{table}.csv", column, asked)
        return _number(row, column, experiment_row_anchor(family, table, row.name), shown)
    home = named[1].split(".")[0]
    home = home if (recording / home).is_dir() else family  # a library's row is in the family's own table
    asked |= dict.fromkeys(("m", "k"), named[2]) if len(named) == 3 else {}
    if table == "counters":
        row = _row(recording / home / "counters.csv", "value", {"metric": column, **asked})
        return _number(row, "value", counter_anchor(row), shown, in_words(float(row["value"]), row["unit"]))
    if table == "summary":
        row = _row(recording / home / "summary.csv", column, asked)
    else:
        row = _row(recording / home / regime_files.FOLDER, column, {"regime": table, **asked})
    return _number(row, column, row_anchor(row), shown)


def _number(row: pd.Series, column: str, place: str, shown: Rows, text: str = "") -> Number:
    """A cell as the text shows it; `place` is the id that its row has in a report."""
    cell, held = row[column], shown.get(place, {}).get(column)
    try:
        value = float(cell)
        text = text or (as_published(value) if cell.lstrip("-").isdigit() else format_number(value))
    except ValueError:
        value, text = math.nan, cell
    same = held is not None and not pd.isna(held) and (str(held) == cell or held == value)
    return Number(text, value, (place,) if same else ())


def _row(path: Path, column: str, cells: Mapping[str, str]) -> pd.Series:
    """The one row of a table with these cells. Raises UserError if there is none, or several."""
    table = _read(path)
    name = paths.shown(path)
    if absent := [each for each in (column, *cells) if each not in table.columns]:
        raise UserError(f"{name} has no column {', '.join(absent)}; it has {', '.join(table.columns)}.")
    rows = table[table[column] != ""]
    for key, cell in cells.items():
        left = rows[rows[key] == cell]
        if left.empty:
            raise UserError(f"{name} has no row with {key} {cell} there, but {', '.join(sorted(set(rows[key]))[:12])}.")
        rows = left
    kernels = table.groupby("toolkit")["kernel"].nunique() if "toolkit" in rows else {}
    first = max((each for each in TOOLKITS if each in kernels), key=lambda each: kernels[each], default="")
    for key, cell in (("toolkit", first), ("cache", "warm")):
        if len(rows) > 1 and key in rows and (rows[key] == cell).any():
            rows = rows[rows[key] == cell]
    if len(rows) > 1:
        apart = [each for each in rows.columns if rows[each].nunique() > 1]
        raise UserError(f"{len(rows)} rows of {name} match; choose by {', '.join(apart[:6])}.")
    return rows.iloc[0]


@cache
def _read(path: Path) -> pd.DataFrame:
    """A table as text; of the takes of the regimes each row from the last that has it."""
    if path.name == regime_files.FOLDER:
        takes = [_read(take / regime_files.SUMMARY) for take in regime_files.takes(path.parents[1], path.parent.name)]
        rows = pd.concat(takes, ignore_index=True) if takes else pd.DataFrame(columns=list(REGIME_COLUMNS))
        return rows.drop_duplicates(list(REGIME_POINT), keep="last").fillna("")
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise UserError(f"there is no {paths.shown(path)}.") from None
