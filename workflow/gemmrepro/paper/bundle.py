"""The folder that the report is: pages that link to each other, and the files that they link to beside them.

Templates write a link to an element as ``href="#id"``, whichever page holds it, and a link to a page or a file by its
place in the bundle. `resolved` turns both into relative links, so the folder opens from disk wherever it lies.
"""

from __future__ import annotations

import gzip
import html
import posixpath
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from gemmrepro.core.files import write_atomic
from gemmrepro.core.names import REPORT_FOLDERS
from gemmrepro.errors import UserError

_ID = re.compile(r'<[^<>]* id="([^"]+)"')
_LINK = re.compile(r'(?P<before><(?:a|link|script|img|source)\b[^<>]*?) (?P<name>href|src)="(?P<target>[^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")


class Files:
    """The files that the pages link to, by their place in the bundle; those that end in ``.gz`` are compressed."""

    def __init__(self) -> None:
        self._sources: dict[str, Path | str] = {}

    def add(self, source: Path | None, place: str) -> str | None:
        """The `place` of a file that is copied there when the bundle is written; None where there is no such file."""
        if source is None or not source.is_file():
            return None
        self._sources[place] = source
        return place

    def text(self, text: str, place: str) -> str:
        """The `place` of a file with this text."""
        self._sources[place] = text
        return place

    def __contains__(self, place: str) -> bool:
        return place in self._sources

    def write(self, folder: Path) -> None:
        """Write every file to its place in `folder`."""
        for place, source in self._sources.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, str):
                write_atomic(target, source)
            elif place.endswith(".gz"):
                target.write_bytes(gzip.compress(source.read_bytes(), 6, mtime=0))
            else:
                shutil.copyfile(source, target)


def resolved(pages: Mapping[str, str], files: Files) -> dict[str, str]:
    """The pages, by their place in the bundle, with links that are relative to each.

    What would lead to an element that no page has, such as a kernel of a family that was not chosen, is no link.

    Raises:
        UserError: a link leads to a page or file that the bundle does not hold.
    """
    ids = {place: set(_ID.findall(text)) for place, text in pages.items()}
    homes: dict[str, str] = {}
    for place, found in ids.items():
        for each in found:
            homes.setdefault(each, place)

    def link(page: str, target: str) -> str | None:
        if not target or _OUTSIDE.match(target):
            return target
        place, _, fragment = target.partition("#")
        if not place:
            place = page if fragment in ids[page] else homes.get(fragment, "")
        known = place in pages or place in files
        is_view = "=" in fragment  # a choice of filters, not an element
        if place and not known:
            raise UserError(f"{page} links to {place}, which the report does not hold; mend the template.")
        if not place or (fragment and not is_view and fragment not in ids.get(place, ())):
            return None
        to = "" if place == page else posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{to}#{fragment}" if fragment else to or posixpath.basename(page)

    def relinked(page: str, text: str) -> str:
        def mend(match: re.Match[str]) -> str:
            to = link(page, html.unescape(match["target"]))
            return match["before"] if to is None else f'{match["before"]} {match["name"]}="{html.escape(to)}"'

        return _LINK.sub(mend, text)

    return {place: relinked(place, text) for place, text in pages.items()}


def write(pages: Mapping[str, str], files: Files, out: Path) -> None:
    """Write the bundle into the folder `out`, whose REPORT_FOLDERS are replaced."""
    for name in REPORT_FOLDERS:
        shutil.rmtree(out / name, ignore_errors=True)
    files.write(out)
    for place, text in pages.items():
        target = out / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
