"""The one-file edition: every page of the report in one HTML file, of which a browser shows one page at a time.

A page is shown while its section, or anything in it, is the target of the address, so links work without a script.
The files beside the report, such as samples and machine code, are not in it; ``report.zip`` has them.
"""

from __future__ import annotations

import argparse
import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

from gemmrepro.core.names import REPORT_PAGES
from gemmrepro.errors import UserError, run_stage
from gemmrepro.paper import evidence_index
from gemmrepro.paper.policy import PLACE, secured
from gemmrepro.paper.search import SEARCH
from gemmrepro.paper.text import anchor

FIRST = "index.html"

STYLE = """
.pages > .page:not(:target, :has(:target), .chosen, .first) { display: none; }
.pages:has(> .page:not(.first):target, > .page:not(.first) :target, > .chosen) > .first { display: none; }
"""
"""Of the pages, the one that holds the target is shown; the paper, where none is."""

_ID = re.compile(r'(<[^<>]*?) id="([^"]+)"')
_HREF = re.compile(r'(<a\b[^<>]*?) href="([^"]*)"')
_NAMES = re.compile(r'(<[^<>]*?) (for|aria-labelledby|aria-describedby|aria-controls)="([^"]+)"')
_USES = re.compile(r'(url\(|<use\b[^<>]*? href=")#([^")]+)')
_SELECTOR = re.compile(r"^#([\w-]+)", re.MULTILINE)
_SVG_STYLE = re.compile(r"(<svg\b.*?<style>)(.*?)(</style>)", re.DOTALL)
_ENDS = re.compile("</")
_APART = r"<\\/"
"""What a script says for ``</``, which could end its element."""

_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class _Part:
    """A page of the folder: its place, its class, and its header and main part with ids that no other page has."""

    place: str
    kind: str
    body: str
    names: Mapping[str, str]

    @property
    def id(self) -> str:
        return page_id(self.place)


def page_id(place: str) -> str:
    """The id of a page's section."""
    return f"page-{anchor(place.removesuffix('.html'))}"


def single(pages: Mapping[str, str], scripts: Mapping[str, str]) -> str:
    """One page of all `pages`, which are by place, with the `scripts` that they would load.

    Raises:
        UserError: a page lacks its header or main part.
    """
    taken = Counter(ident for text in pages.values() for ident in {found[1] for found in _ID.findall(_body(text))})
    parts = {place: _part(place, text, taken) for place, text in pages.items()}
    sections = "\n".join(
        f'<section class="page {part.kind}{" first" if place == FIRST else ""}" id="{part.id}">\n'
        f"{_linked(part, parts)}\n</section>"
        for place, part in parts.items()
    )
    paper = pages[FIRST]
    start, end = paper.index("<header>"), paper.index("</main>") + len("</main>")
    frame = _Part(FIRST, "", paper[:start] + "\0" + paper[end:], {})
    text = _linked(frame, parts).replace("\0", f'<div class="pages">\n{sections}\n</div>')
    data = [f"\n{_ENDS.sub(_APART, script)}" for script in scripts.values()]
    told = "\n".join(f"<script>{script}</script>" for script in data)
    text = re.sub(r'<meta http-equiv="Content-Security-Policy" content="[^"]*">', PLACE, text, count=1)
    text = re.sub(r'<html lang="en" data-root="[^"]*"', '<html lang="en" data-root="" data-single', text, count=1)
    text = text.replace('<body class="paper">', '<body class="single">', 1)
    text = text.replace("</style>", f"{STYLE}</style>", 1)
    return secured(text.replace("</body>", f"{told}\n</body>", 1), data)


def _body(text: str) -> str:
    """The header and the main part of a page, and what is between them."""
    start, end = text.find("<header>"), text.find("</main>")
    if start < 0 or end < 0:
        raise UserError("a page of the report has no header or no main part; make the report again.")
    return text[start : end + len("</main>")]


def _part(place: str, text: str, taken: Mapping[str, int]) -> _Part:
    """A page with ids of its own: those that several pages have get its id as a prefix, but in the paper."""
    body = _body(text)
    kind = re.search(r'<body class="([^"]*)"', text)
    found = dict.fromkeys(ident for _, ident in _ID.findall(body))
    names = {ident: ident if taken[ident] == 1 or place == FIRST else f"{page_id(place)}-{ident}" for ident in found}

    def named(ident: str) -> str:
        return names.get(ident, ident)

    body = _ID.sub(lambda match: f'{match[1]} id="{named(match[2])}"', body)
    body = _NAMES.sub(lambda match: f'{match[1]} {match[2]}="{" ".join(map(named, match[3].split()))}"', body)
    body = _USES.sub(lambda match: f"{match[1]}#{named(match[2])}", body)
    body = _SVG_STYLE.sub(
        lambda match: match[1] + _SELECTOR.sub(lambda each: f"#{named(each[1])}", match[2]) + match[3], body
    )
    return _Part(place, kind[1] if kind else "", body, names)


def _linked(part: _Part, parts: Mapping[str, _Part]) -> str:
    """A page whose links lead to the sections of the others; a link to a file becomes its text."""

    def to(match: re.Match[str]) -> str:
        target = unescape(match[2])
        if _OUTSIDE.match(target):
            return match[0]
        path, _, fragment = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(part.place), path)) if path else part.place
        if place not in parts:
            return match[1]
        if not fragment:
            return f'{match[1]} href="#{parts[place].id}"'
        known = parts[place].names.get(fragment, fragment)
        return f'{match[1]} href="#{escape(known)}"'

    return _HREF.sub(to, part.body)


def read(report: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The pages and scripts of the report in a folder. Raises UserError if it is not there."""
    if not (report / FIRST).is_file():
        raise UserError(f"{report}/{FIRST} is missing; make the report first.")
    places = [f"{name}.html" for name in REPORT_PAGES]
    for folder in ("families", "kernels", "baselines"):
        places += sorted(path.relative_to(report).as_posix() for path in (report / folder).glob("*.html"))
    scripts = {place: (report / place).read_text() for place in (evidence_index.SCRIPT, SEARCH)}
    return {place: (report / place).read_text() for place in places}, scripts


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the report as one HTML file.")
    parser.add_argument("--report", type=Path, required=True, help="folder of the report")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    pages, scripts = read(arguments.report)
    text = single(pages, scripts)
    arguments.out.write_text(text)
    print(f"wrote {arguments.out}, {len(text.encode()) / 1e6:.1f} MB, {len(pages)} pages")
    return 0


if __name__ == "__main__":
    run_stage(main)
