"""The links of a report's folder, read without a browser."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

_LINK = re.compile(r'<(?:a|link|script|img|use)\b[^<>]*? (?:href|src)="([^"]*)"')


@cache
def _ids(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r'<[^<>]* id="([^"]+)"', path.read_text()))


def _links(report: Path) -> Iterator[tuple[Path, Path, str]]:
    """Each page with the file and the fragment of each of its links that stay in the report."""
    for page in sorted(report.resolve().rglob("*.html")):
        for link in dict.fromkeys(map(unescape, _LINK.findall(page.read_text()))):
            if not re.match(r"[a-z]+:", link):
                place, _, fragment = link.partition("#")
                yield page, (page.parent / place).resolve() if place else page, fragment


def dead_links(report: Path) -> list[str]:
    """Each link of a page that leads to no file of the report, or to no element of its page."""
    return [
        f"{page.name}: {target}#{fragment}"
        for page, target, fragment in _links(report)
        if not (target.is_file() and target.is_relative_to(report.resolve()))
        or (fragment and "=" not in fragment and fragment not in _ids(target))
    ]


@cache
def links_to_rows(report: Path) -> list[tuple[str, str]]:
    """Every (page, id) of a row that some page links to."""
    found = {
        (target.relative_to(report.resolve()).as_posix(), fragment)
        for _, target, fragment in _links(report)
        if re.match("(row|samples|claim|figure)-", fragment)
    }
    return sorted(found)
