"""A number in the text of a discussion, and arithmetic with such numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from gemmrepro.core.text import format_number


@dataclass(frozen=True)
class Live:
    """A number in the text: its text, its value, and the anchor of its samples. Unknown without a value."""

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


def percent(part: float) -> Live:
    """A share that the text itself computes, as a percentage; its value is the share."""
    return Live(f"{100 * part:.0f}%", float(part))


def quotient(a: Live, b: Live, unit: str = "") -> Live:
    """a / b, which must be in the same unit, unless `unit` names that of the quotient."""
    return _divided(a, b, lambda value: with_unit(format_number(value), unit))


def share(a: Live, b: Live) -> Live:
    """a / b as a percentage; its value is the quotient."""
    return _divided(a, b, lambda value: f"{100 * value:.0f}%")


def product(a: Live, b: Live, unit: str = "", scale: float = 1.0) -> Live:
    """a b scale."""
    if a.value is None or b.value is None:
        return UNKNOWN
    return _combined(a, b, a.value * b.value * scale, lambda value: with_unit(format_number(value), unit))


def _divided(a: Live, b: Live, write: Callable[[float], str]) -> Live:
    if a.value is None or not b.value:
        return UNKNOWN
    return _combined(a, b, a.value / b.value, write)


def _combined(a: Live, b: Live, value: float, write: Callable[[float], str]) -> Live:
    """A number computed from two: it links to the samples of the first that has any, and is stale if either is."""
    return Live(write(value), value, a.link or b.link, a.stale or b.stale)
