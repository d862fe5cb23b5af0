"""Prepares a slim SVG (`figures.slim`) for a page: ids and classes of its own, colours and width of the page."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
import zlib

from markupsafe import Markup

from gemmrepro.errors import UserError

_ALONE = re.compile(r"@media\(prefers-color-scheme:dark\)\{.*?\}\}\n", re.DOTALL)
_DRAWN = frozenset("svg title desc style defs g path clipPath rect pattern use text tspan".split())
"""The elements that `figures.slim` writes. None runs anything or loads anything but what it refers to."""

_RULE = re.compile(r"^(svg|\.\w+)(?=\{)", re.MULTILINE)


def inline_svg(svg: str, name: str) -> Markup:
    """An SVG file's text as an element of a page.

    Ids get a prefix, and rules of style hold within this figure alone, so that no two figures share any; the prefix is
    short, since hundreds of marks refer to an id. The colours of dark mode are left to the page. The figure's title and
    description are those that screen readers read.

    Raises:
        UserError: `svg` holds no SVG, or one that could run a script.
    """
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    if not element:
        raise UserError(f"figure {name} is not an SVG; draw the figures again.")
    _check(element[0], name)
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


def _check(svg: str, name: str) -> None:
    """Raises UserError unless the text, in XML as in HTML, is a drawing alone."""
    why = "has a comment, a CDATA section or an instruction" if re.search("<[!?]", svg) else ""
    try:
        for element in ElementTree.fromstring(svg).iter() if not why else ():
            tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
            if tag not in _DRAWN:
                why = f"has an element {tag!r}"
            for attribute, value in element.attrib.items():
                if attribute.lower().startswith("on") or (attribute.endswith("href") and not value.startswith("#")):
                    why = f"has an attribute {attribute}={value!r}"
    except ElementTree.ParseError as error:
        why = f"is no XML ({error})"
    if why:
        raise UserError(f"figure {name} {why}, which no figure of this project has; draw the figures again.")
