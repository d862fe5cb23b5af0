"""Numbers, units and lists as readable text."""

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from math import floor, log10

_PREFIX = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"^(?P<prefix>[nuµmKkMGT]?)(?P<base>byte|Byte|B|FLOP|inst|cycle|s)s?(?P<rate>/s(ec(ond)?)?)?$")

_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def hidden_character(text: str) -> str:
    """The first character in `text`, or escaped in it as in JSON, that shows nothing or changes how others show.
    As ``U+202E``; "" if there is none. Line feeds are none."""
    escaped = [chr(int(digits, 16)) for digits in re.findall(r"\\u([0-9a-fA-F]{4})", text)]
    found = (*re.findall(r"[^\n\x20-\x7e]", text), *escaped)
    return next((f"U+{ord(char):04X}" for char in found if unicodedata.category(char) in _UNSEEN), "")


def filled_in(text: str, figures: Mapping[str, object]) -> str:
    """`text` with each {name} replaced by the figure of that name.
    Without `str.format`'s attributes, items and formats, which could take any amount of memory. Raises KeyError for an
    unknown figure, ValueError for an open brace or a field that is no mere name."""
    parts = []
    for literal, name, form, conversion in string.Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            if form or conversion or not name.isidentifier():
                raise ValueError(f"'{{{name}}}' is no name in braces")
            parts.append(str(figures[name]))
    return "".join(parts)


def convert(value: float, unit: str, to: str) -> float | None:
    """Convert `value` from `unit` to the unit `to` (``Gbyte/second`` to ``GB/s``); None if they do not match."""
    if unit == to:
        return value
    have, want = _UNIT.match(unit or ""), _UNIT.match(to or "")
    if not have or not want or bool(have["rate"]) != bool(want["rate"]):
        return None
    if have["base"].replace("yte", "").upper() != want["base"].replace("yte", "").upper():
        return None
    return value * _PREFIX[have["prefix"]] / _PREFIX[want["prefix"]]


def format_number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands grouped, never in exponent form between 1e-4 and 1e7."""
    if value == 0 or not abs(value) < float("inf"):
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"


def as_published(value: float) -> str:
    """A published value with all the digits that the article prints."""
    return f"{value:,.12g}"


def in_words(value: float, unit: str) -> str:
    """A counter's value for reading: ``12.3%``, ``1.45 GB``, ``2.1 TB/s``, ``5.1 µs``, ``268 million``."""
    if unit == "%":
        return f"{format_number(value)}%"
    if convert(1.0, unit, "byte") or convert(1.0, unit, "byte/s"):
        base = "byte" if convert(1.0, unit, "byte") else "byte/s"
        number, suffix = convert(value, unit, base) or 0.0, "" if base == "byte" else "/s"
        for factor, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if number >= factor:
                return f"{format_number(number / factor)} {name}{suffix}"
        return f"{format_number(number)} B{suffix}"
    if unit in ("ns", "nsecond"):
        return f"{format_number(value / 1e3, 4)} µs"
    for factor, name in ((1e9, "billion"), (1e6, "million")):
        if abs(value) >= factor:
            return f"{format_number(value / factor)} {name}"
    return format_number(value)


def listed(words: Sequence[str]) -> str:
    """``fp16, bf16 and tf32``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
