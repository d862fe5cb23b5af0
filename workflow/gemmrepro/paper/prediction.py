"""What a kernel's author expected of it before it was measured, from the comment that begins its source."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = re.compile(r"^[A-Z][a-z]+(?: [a-z]+)?:(?:\s|$)")
_EXPECTED = re.compile(r"^(?:Expected|Predicted):\s*(.*)$")
_QUOTES = '"""'


def prediction(source: str) -> str:
    """The paragraph ``Expected:`` at the head of a CUDA or Python source, on one line; empty without one.

    The paragraph ends with the next label, such as ``Takes:``, with an empty line, or with the comment.
    """
    found: list[str] = []
    begun = False
    for text in _head(source):
        if start := _EXPECTED.match(text):
            begun = True
            found.append(start[1])
        elif begun and (not text or _LABEL.match(text)):
            break
        elif begun:
            found.append(text)
    return " ".join(filter(None, found))


def _head(source: str) -> Iterator[str]:
    """The lines of the comment, or of the docstring, that a source begins with."""
    if source.startswith(_QUOTES):
        yield from map(str.strip, source.split(_QUOTES)[1].splitlines())
        return
    for line in source.splitlines():
        if not line.startswith("//"):
            return
        yield line.removeprefix("//").strip()
