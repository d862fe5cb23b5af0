"""The folder that the report is: pages that link to each other, each with its policy, and the files beside them.

Templates write ``href="#id"``, whichever page holds the element, and a page or a file by its place. `resolved` makes
both relative, so the folder opens from disk wherever it lies.

The Content-Security-Policy stands in a ``<meta>``, as a page opened from disk has no headers. It allows the project's
own scripts by SHA-256, with what they load (``'strict-dynamic'``), and the styles of the folder, or by hash in the
page. Source: https://www.w3.org/TR/CSP3/.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import posixpath
import re
import shutil
import zipfile
from argparse import Namespace
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from gemmrepro.core.files import write_atomic
from gemmrepro.core.names import OWN_PAGE, REPORT_FOLDERS, REPORT_PAGES
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError

_ID = re.compile(r'<[^<>]* id="([^"]+)"')
_LINK = re.compile(r'(?P<before><(?:a|link|script|img|source)\b[^<>]*?) (?P<name>href|src)="(?P<target>[^"]*)"')
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")


RECORDINGS = "data/recordings.zip"
"""The place of the archive of what was measured: rows, samples, counters and runs."""


class Files:
    """The files that the pages link to, by their place in the bundle; those that end in ``.gz`` are compressed."""

    def __init__(self) -> None:
        self._sources: dict[str, Path | str] = {}
        self._packed: dict[str, Path] = {}

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

    def pack(self, source: Path, name: str) -> str | None:
        """The place of the archive that holds a file under this name; None where there is no such file."""
        if not source.is_file():
            return None
        self._packed[name] = source
        return RECORDINGS

    def __contains__(self, place: str) -> bool:
        return place in self._sources or (place == RECORDINGS and bool(self._packed))

    def write(self, folder: Path) -> None:
        for place, source in self._sources.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, str):
                write_atomic(target, source)
            elif place.endswith(".gz"):
                target.write_bytes(gzip.compress(source.read_bytes(), 6, mtime=0))
            else:
                shutil.copyfile(source, target)
        if self._packed:
            archive(folder / RECORDINGS, self._packed)


def resolved(pages: Mapping[str, str], files: Files) -> dict[str, str]:
    """The pages, by their place in the bundle, with links that are relative to each.
    A link to an element that no page has, as of a family that was not chosen, is none. Raises UserError for a link to a
    page or file that the bundle lacks."""
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
        (out / name).mkdir(parents=True)
    (out / OWN_PAGE).unlink(missing_ok=True)
    files.write(out)
    for place, text in pages.items():
        target = out / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


PLACE = '<meta http-equiv="Content-Security-Policy" content="">'
"""Where a template leaves room for the policy: before any script or style."""

LOADER = (
    'document.head.append(Object.assign(document.createElement("script"),'
    '{src:document.documentElement.dataset.root+"assets/paper.js"}))'
)
"""The script in every page but the paper: it loads the one beside them."""

PAPER = ROOT / "reports/template/paper.js"
"""The script in the paper."""

_SCRIPT = re.compile(r"<script\b[^>]*>(.*?)</script\b[^>]*>", re.DOTALL | re.IGNORECASE)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_OTHER = r"""\s+(?!style=|on[a-z]+=)[^\s=<>"']+(?:=(?:"[^"]*"|'[^']*'|[^\s<>"']+))?"""
_ATTRIBUTE = re.compile(rf"<[a-zA-Z][\w-]*(?:{_OTHER})*\s+(style|on[a-z]+)=")
"""An attribute of a tag, and not what the value of another one says."""


def sha256(text: str) -> str:
    """The source expression of a policy that allows an inline script or style with this text."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def tidy(text: str) -> str:
    """A page, or a part of one, without blank lines and blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def own_scripts() -> tuple[str, str]:
    """The texts of the scripts that a page may have: the loader, and the paper's as index.html.j2 has it."""
    return LOADER, f"\n{tidy(PAPER.read_text())}"


def policy(page: str) -> str:
    """The policy of a page, which allows those of the project's own scripts that are in it."""
    held = _SCRIPT.findall(page)
    scripts = [script for script in own_scripts() if script in held]
    drawn = "".join(_SVG.findall(page))
    # In SVG the text of a style is markup like any other; in HTML it is taken as it stands.
    styles = [*_STYLE.findall(_SVG.sub("", page)), *map(html.unescape, _STYLE.findall(drawn))]
    allowed = {
        "default-src": ["'none'"],
        "script-src": ["'strict-dynamic'", *dict.fromkeys(map(sha256, scripts))],
        "style-src": ["'self'", *dict.fromkeys(map(sha256, styles))],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in allowed.items())


def secured(page: str) -> str:
    """The page with its policy.
    Raises UserError if it has no PLACE for it, a script of others, or an attribute that no hash can allow."""
    if foreign := set(_SCRIPT.findall(page)) - set(own_scripts()):
        start = " ".join(min(foreign).split())[:60]
        raise UserError(f"the page has a script that is not the project's ({start}); mend what it was made from.")
    if found := _ATTRIBUTE.search(_SCRIPT.sub("", page)):
        raise UserError(f"the page has an attribute {found[1]}=, which its policy forbids; use a class or a listener.")
    if page.count(PLACE) != 1:
        raise UserError("the page has no place for its Content-Security-Policy; mend base.html.j2.")
    return page.replace(PLACE, PLACE.replace('content=""', f'content="{policy(page)}"'))


DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive, so that equal reports make equal archives."""


def members(report: Path) -> list[Path]:
    """The files of the report in the folder `report`. Raises UserError if there is none."""
    if not (report / "index.html").is_file():
        raise UserError(f"{report}/index.html is missing; make the report first.")
    inside = [path for name in REPORT_FOLDERS for path in (report / name).rglob("*") if path.is_file()]
    return sorted([*(report / f"{name}.html" for name in REPORT_PAGES), *report.glob(OWN_PAGE), *inside])


def archive(out: Path, files: Mapping[str, Path]) -> None:
    """Write a ZIP file of these files by their names in it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, path.read_bytes())


def pack(report: Path, out: Path) -> int:
    """Write the archive; returns the number of its files."""
    files = members(report)
    archive(out, {f"report/{path.relative_to(report).as_posix()}": path for path in files})
    return len(files)


def zip_step(options: Namespace) -> int:
    count = pack(options.report, options.out)
    print(f"wrote {options.out}, {options.out.stat().st_size / 1e6:.1f} MB, {count} files")
    return 0
