"""Names for the numbers of a discussion's tables, which are links: what a screen reader says of one read alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

SHORT = 12
"""Most letters of a second cell that belongs to a row's name, such as a size."""

_TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<(?P<tag>t[hd])\b(?P<of>[^>]*)>.*?</(?P=tag)>", re.DOTALL)
_LINK = re.compile(r"<a (?![^>]*aria-label)(?P<of>[^>]*)>(?P<text>.*?)</a>", re.DOTALL)
_SPAN = re.compile(r'colspan="(\d+)"')


def named(html: str) -> str:
    """The text with a name on every link in a table's cell: its own text, its column's heading and its row's name."""
    return _TABLE.sub(lambda table: _named_table(table[0]), html)


def _named_table(table: str) -> str:
    head, mark, body = table.partition("<tbody>")
    if not mark:
        return table
    lines = [list(_columns(row)) for row in _ROW.findall(head)]
    over = [" ".join(dict.fromkeys(filter(None, words))) for words in zip(*lines, strict=False)]
    # A heading that repeats is told apart by the place of its column.
    headings = [f"{each}, column {i}" if over.count(each) > 1 else each for i, each in enumerate(over, 1)]
    return head + mark + _ROW.sub(lambda row: _named_row(row[0], headings), body)


def _columns(row: str) -> Iterator[str]:
    """The heading over each column; one over several stands for each of them."""
    for cell in _CELL.finditer(row):
        span = _SPAN.search(cell["of"])
        yield from [_plain(cell[0])] * (int(span[1]) if span else 1)


def _named_row(row: str, headings: list[str]) -> str:
    cells = list(_CELL.finditer(row))
    name, parts, end, column = "", [], 0, 0
    for cell in cells:
        if cell["tag"] == "th":
            name = f"{name} {_plain(cell[0])}".strip()
            text = cell[0]
        else:
            heading = headings[column] if column < len(headings) else ""
            if column == 1 and "<a" not in cell[0] and len(said := _plain(cell[0])) <= SHORT:
                name = f"{name}, {said}"
            text = _named_cell(cell[0], ", ".join(filter(None, (heading or f"column {column + 1}", name))))
        parts += [row[end : cell.start()], text]
        end, span = cell.end(), _SPAN.search(cell["of"])
        column += int(span[1]) if span else 1
    return "".join(parts) + row[end:]


def _named_cell(cell: str, name: str) -> str:
    count = 0

    def one(link: re.Match[str]) -> str:
        nonlocal count
        count += 1
        which = f", number {count}" if count > 1 else ""
        label = f"{_plain(link['text'])}, {name}{which}"
        return f'<a {link["of"]} aria-label="{escape(label)}">{link["text"]}</a>'

    return _LINK.sub(one, cell)


def _plain(markup: str) -> str:
    """The words of a piece of HTML."""
    return " ".join(Markup(re.sub("<[^<>]+>", " ", markup)).unescape().split())
