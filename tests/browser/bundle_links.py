"""The links of a report's folder, read without a browser."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from pathlib import Path

_LINK = re.compile(r'<(?:a|link|script|img|use)\b[^<>]*? (?:href|src)="([^"]*)"')
_ID = re.compile(r'<[^<>]* id="([^"]+)"')


@cache
def _read(path: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """The ids and links of a page."""
    text = path.read_text()
    return frozenset(_ID.findall(text)), tuple(dict.fromkeys(map(unescape, _LINK.findall(text))))


def _inside(path: Path, link: str) -> tuple[Path, str] | None:
    """Where a link of the page at `path` leads, or None if it leaves the report."""
    if re.match(r"[a-z]+:", link):
        return None
    place, _, fragment = link.partition("#")
    return ((path.parent / place).resolve() if place else path.resolve()), fragment


def dead_links(report: Path) -> list[str]:
    """Each link of a page that leads to no file of the report, or to no element of its page."""
    dead = []
    for path in sorted(report.rglob("*.html")):
        for link in _read(path)[1]:
            found = _inside(path, link)
            if found is None:
                continue
            target, fragment = found
            lost = not target.is_file() or not target.is_relative_to(report.resolve())
            if lost or (fragment and "=" not in fragment and fragment not in _read(target)[0]):
                dead.append(f"{path.relative_to(report)}: {link}")
    return dead


def links_to_rows(report: Path) -> list[tuple[str, str]]:
    """Every (page, id) of a row that some page links to."""
    found = set()
    for path in report.rglob("*.html"):
        for link in _read(path)[1]:
            target = _inside(path, link)
            if target and re.match("(row|samples|claim|figure)-", target[1]):
                found.add((target[0].relative_to(report.resolve()).as_posix(), target[1]))
    return sorted(found)
