"""Prepares a slim SVG (`figures.slim`) for a page: ids and classes of its own, colours and width of the page."""

from __future__ import annotations

import base64
import re
import zlib

from markupsafe import Markup

from gemmrepro.errors import UserError

_ALONE = re.compile(r"@media\(prefers-color-scheme:dark\)\{.*?\}\}\n", re.DOTALL)
_RULE = re.compile(r"^(svg|\.\w+)(?=\{)", re.MULTILINE)


def inline_svg(svg: str, name: str) -> Markup:
    """An SVG file's text as an element of a page.

    Ids get a prefix, and rules of style hold within this figure alone, so that no two figures share any; the prefix is
    short, since hundreds of marks refer to an id. The colours of dark mode are left to the page. The figure's title and
    description are those that screen readers read.

    Raises:
        UserError: `svg` holds no SVG.
    """
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    if not element:
        raise UserError(f"figure {name} is not an SVG; draw the figures again.")
    text = _ALONE.sub("", element[0])
    text = re.sub(r"var\((--[\w-]+),#[0-9a-f]{6}\)", r"var(\1)", text)
    prefix = "s" + base64.urlsafe_b64encode(zlib.crc32(name.encode()).to_bytes(4)).decode()[:4]
    text = re.sub(r' id="([^"]*)"', rf' id="{prefix}\1"', text)
    text = re.sub(r'href="#([^"]*)"', rf'href="#{prefix}\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}\1)", text)
    text = _RULE.sub(lambda match: f"#{name}" + ("" if match[1] == "svg" else f" {match[1]}"), text)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<title>", f'<title id="{name}-title">', 1).replace("<desc>", f'<desc id="{name}-desc">', 1)
    labelled = f'<svg id="{name}" role="img" aria-labelledby="{name}-title {name}-desc"'
    return Markup(text.replace("<svg", labelled, 1))
