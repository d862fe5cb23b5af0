"""Prepares matplotlib's SVGs for the page: unique ids, colours that follow dark mode, few bytes.

All figures of the page share the outlines of their letters (`Glyphs`); coordinates keep two decimals, a hundredth of a
point; elements that nothing refers to lose their ids.
"""

from __future__ import annotations

import html
import re

from markupsafe import Markup

from gemmrepro.errors import UserError
from gemmrepro.paper.figures.style import THEME

_GLYPH = re.compile(r'<path id="(DejaVu[\w-]+)" d="([^"]*)"[^>]*/>')
_BLANK = re.compile(r'<path id="(DejaVu[\w-]+)" transform="[^"]*"/>')
_NUMBER = re.compile(r"-?\d+\.\d+")


class Glyphs:
    """Outlines of the letters that the figures of one page use, each kept once."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}

    def take(self, svg: str) -> str:
        """`svg` without its outlines, which are kept for `markup`."""

        def keep(match: re.Match[str]) -> str:
            self._paths[match[1]] = _packed(match[2])
            return ""

        svg = _GLYPH.sub(keep, svg)
        for blank in set(_BLANK.findall(svg)):
            svg = re.sub(rf'<use href="#{blank}"[^>]*/>', "", svg)
        return re.sub(r"<defs>\s*</defs>", "", _BLANK.sub("", svg))

    def markup(self) -> Markup:
        """An SVG that shows nothing and defines the outlines; empty where no figure has text."""
        if not self._paths:
            return Markup("")
        paths = "".join(
            f'<path id="{name}" d="{path}" transform="scale(.015625)"/>' for name, path in sorted(self._paths.items())
        )
        return Markup(f'<svg width="0" height="0" class="glyphs" aria-hidden="true"><defs>{paths}</defs></svg>')


def _packed(path: str) -> str:
    """A path's data without the blanks that separate nothing."""
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", path).strip()


def _short(number: str) -> str:
    text = f"{float(number):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _rounded(text: str) -> str:
    """Coordinates with two decimals; factors of a scale keep all digits, because they multiply coordinates."""

    def shorten(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith("scale") else _NUMBER.sub(lambda number: _short(number[0]), match[0])

    text = re.sub(r' d="([^"]*)"', lambda match: f' d="{_packed(_NUMBER.sub(lambda n: _short(n[0]), match[1]))}"', text)
    text = re.sub(r' (?:x|y|width|height)="[^"]*"', shorten, text)
    text = re.sub(r"translate\([^)]*\)", shorten, text)
    return re.sub(r'(<use [^>]*?) transform="translate\((\S+) 0\)"', r'\1 x="\2"', text)


def inline_svg(svg: str, name: str, title: str, description: str, glyphs: Glyphs) -> Markup:
    """An SVG file's text as an element of the page.

    Ids get the prefix `name`, so that no two figures share any; the literal colours of `style.THEME` become custom
    properties, so that the figure follows dark mode; the figure gets a title and a description for screen readers. The
    outlines of its letters go to `glyphs`, whose markup the page must hold.

    Raises:
        UserError: `svg` holds no SVG.
    """
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    if not element:
        raise UserError(f"figure {name} is not an SVG; draw the figures again.")
    text = re.sub(r"<metadata>.*?</metadata>|<title>.*?</title>|<!--.*?-->", "", element[0], flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    text = _rounded(glyphs.take(text))
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
    numbers = {old: f"{name}-{number}" for number, old in enumerate(sorted({a or b for a, b in used}))}
    new_ids = {old: old if old.startswith("DejaVu") else number for old, number in numbers.items()}
    text = re.sub(r' id="([^"]*)"', lambda match: f' id="{new_ids[match[1]]}"' if match[1] in new_ids else "", text)
    text = re.sub(r'href="#([^"]*)"', lambda match: f'href="#{new_ids[match[1]]}"', text)
    text = re.sub(r"url\(#([^)]*)\)", lambda match: f"url(#{new_ids[match[1]]})", text)
    for colour, variable in THEME.items():
        # A presentation attribute takes no var(): it becomes a style.
        text = re.sub(rf'\b(fill|stroke)="{colour}"', rf'style="\1: var({variable})"', text, flags=re.IGNORECASE)
        text = re.sub(rf"(?<=[: ]){colour}\b", f"var({variable})", text, flags=re.IGNORECASE)
    text = re.sub(r"(<svg\b[^>]*?) width=\"[^\"]*\"", r"\1", text, count=1)
    text = re.sub(r"(<svg\b[^>]*?) height=\"[^\"]*\"", r"\1", text, count=1)
    head = f'<title id="{name}-title">{html.escape(title)}</title>'
    head += f'<desc id="{name}-desc">{html.escape(description)}</desc>'
    text = re.sub(
        r"<svg\b([^>]*)>",
        lambda match: f'<svg{match[1]} role="img" aria-labelledby="{name}-title {name}-desc">{head}',
        text,
        count=1,
    )
    for _ in range(3):  # empty groups without ids are nested at most three deep
        text = re.sub(r"<g>\s*</g>", "", text)
    return Markup(re.sub(r"\n\s*", "\n", text))
