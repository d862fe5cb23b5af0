"""A number in the text of a discussion, and arithmetic with such numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

from gemmrepro.core.text import format_number


@dataclass(frozen=True)
class Live:
    """A number in the text: its text, its value, and the anchor of its samples. Unknown without a value.

    Of a computed number `formula` says from what, and `rows` are the ids of all rows behind it.
    `printed` marks what an article prints.
    """

    text: str = ""
    value: float | None = None
    link: str | None = None
    stale: bool = False
    formula: str = ""
    rows: tuple[str, ...] = ()
    printed: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a number that the text may rest on."""
        return self.value is not None and not self.stale

    def __html__(self) -> str:
        if self.value is None:
            return '<span class="muted">not measured</span>'
        text = escape(self.text)
        text = f'<a href="#{self.link}"{self._computed}>{text}</a>' if self.link else text
        text = f"<span data-published>{text}</span>" if self.printed else text
        return f'<s class="stale">{text}</s><span class="flag">stale</span>' if self.stale else text

    @property
    def _computed(self) -> str:
        """The attributes that tell how the number was computed."""
        if not self.formula:
            return ""
        return f' data-formula="{escape(self.formula)}" data-from="{" ".join(self.rows)}"'

    @property
    def behind(self) -> tuple[str, ...]:
        """The ids of the rows behind it."""
        return self.rows or ((self.link,) if self.link else ())

    @property
    def term(self) -> str:
        """The number as a term of a formula."""
        return f"({self.formula})" if self.formula else self.text

    def __str__(self) -> str:
        return self.__html__()

    def _compare(self, operand: Live | float, test: Callable[[float, float], bool]) -> bool:
        operand = operand if isinstance(operand, Live) else Live("", float(operand))
        if self.value is None or operand.value is None or self.stale or operand.stale:
            return False
        return test(self.value, operand.value)

    def __gt__(self, operand: Live | float) -> bool:
        return self._compare(operand, lambda a, b: a > b)

    def __ge__(self, operand: Live | float) -> bool:
        return self._compare(operand, lambda a, b: a >= b)

    def __lt__(self, operand: Live | float) -> bool:
        return self._compare(operand, lambda a, b: a < b)

    def __le__(self, operand: Live | float) -> bool:
        return self._compare(operand, lambda a, b: a <= b)


UNKNOWN = Live()


def with_unit(text: str, unit: str) -> str:
    """``62.3%``, ``4.20 GB``, or the bare number without a unit."""
    return text + (unit if unit in ("", "%") else f" {unit}")


def number(value: float, unit: str = "", digits: int = 3) -> Live:
    """A number that the text itself states, such as one from a data sheet."""
    return Live(f"{format_number(value, digits)}{f' {unit}' if unit else ''}", float(value))


def outcome(text: object, compared: Sequence[Live], formula: str) -> Live:
    """What comparing numbers comes to, such as how many pass: `text`, with the rows of all of them behind it."""
    links = [each.link for each in compared if each.link]
    if not links:
        return UNKNOWN
    rows = tuple(dict.fromkeys(row for each in compared for row in each.behind))
    return Live(str(text), float(len(rows)), links[0], any(each.stale for each in compared), formula, rows)


def percent(part: float) -> Live:
    """A share that the text itself computes, as a percentage; its value is the share."""
    return Live(f"{100 * part:.0f}%", float(part))


def quotient(a: Live, b: Live, unit: str = "") -> Live:
    """a / b, which must be in the same unit, unless `unit` names that of the quotient."""
    return _divided(a, b, lambda value: with_unit(format_number(value), unit))


def share(a: Live, b: Live) -> Live:
    """a / b as a percentage; its value is the quotient."""
    return _divided(a, b, lambda value: f"{100 * value:.0f}%")


def as_fast(times: Live) -> Live:
    """``1.06 times as fast``, or ``just as fast`` where a speedup is 1 in the digits that the text prints."""
    text = times.text.removesuffix(" times")
    if times.value is not None and text == format_number(1.0, len(text.replace(".", "").lstrip("0"))):
        return replace(times, text="just as fast")
    return replace(times, text=f"{text} times as fast") if times.value is not None else times


def product(a: Live, b: Live, unit: str = "", scale: float = 1.0) -> Live:
    """a b scale."""
    if a.value is None or b.value is None:
        return UNKNOWN
    formula = f"{a.term} \N{MULTIPLICATION SIGN} {b.term}" + (
        f" \N{MULTIPLICATION SIGN} {scale:g}" if scale != 1 else ""
    )
    return _combined(a, b, a.value * b.value * scale, lambda value: with_unit(format_number(value), unit), formula)


def _divided(a: Live, b: Live, write: Callable[[float], str]) -> Live:
    if a.value is None or not b.value:
        return UNKNOWN
    if b.value == 1 and not b.link:  # the same number in other words
        return replace(a, text=write(a.value), stale=a.stale or b.stale)
    return _combined(a, b, a.value / b.value, write, f"{a.term} \N{DIVISION SIGN} {b.term}")


def _combined(a: Live, b: Live, value: float, write: Callable[[float], str], formula: str) -> Live:
    """A number computed from two: it links to the samples of the first that has any, and is stale if either is."""
    rows = tuple(dict.fromkeys((*a.behind, *b.behind)))
    return Live(write(value), value, a.link or b.link, a.stale or b.stale, formula, rows)
