"""Rewrites matplotlib's SVGs as small ones: text stays text, styles become classes, neighbours alike become one path.

A slim SVG carries its title, its description, and the colours of `style.COLOURS` as custom properties, with those of
dark mode for where the file is opened on its own. On a page the properties of the page take their place.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from operator import itemgetter

from gemmrepro.errors import UserError
from gemmrepro.figures.style import COLOURS, FONTS

_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d*\.\d+(?:e-?\d+)?|-?\d+")
_DEFAULTS = {
    *("fill-opacity: 1", "opacity: 1", "stroke-opacity: 1", "stroke-width: 1", "text-anchor: start"),
    *("stroke-dashoffset: 0", "font-weight: 400"),
}
_NEVER = ("stroke-miterlimit", "font-family", "stroke-linecap", "stroke-linejoin")
"""Properties whose effect nobody can see at the width of these lines, and the font, which all text shares."""


_PATHS = re.compile(r'(<path class="(\w+)" d="[^"]*)"/>\n<path class="\2" d="([^"]*"/>)')
_MARKS = re.compile(r'<use( class="\w+") [^>]*/>(?:\n?<use\1 [^>]*/>){2,}')
"""Neighbours that look alike."""


def slim(svg: str, title: str, description: str) -> str:
    """matplotlib's `svg` with `title` and `description`, a few per cent of its elements and all of its marks.

    Raises:
        UserError: `svg` is no SVG.
    """
    try:
        root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", svg, count=1))
    except ElementTree.ParseError as error:
        raise UserError(f"the figure {title!r} is no SVG ({error}); draw the figures again.") from None
    classes: dict[str, str] = {}
    definitions: dict[str, str] = {}
    names: dict[str, str] = {}
    for part in (part for group in root.iter("defs") for part in group if part.tag != "style"):
        if part.tag == "pattern":
            lines = "".join(_attributes(each) for each in part if each.tag == "path")
            text = f'<pattern id="?" patternUnits="userSpaceOnUse" width="72" height="72">{lines}</pattern>'
        elif part.tag == "clipPath":
            box = part[0].attrib
            edges = " ".join(f'{name}="{_short(float(box[name]))}"' for name in ("x", "y", "width", "height"))
            text = f'<clipPath id="?"><rect {edges}/></clipPath>'
        else:
            text = f'<path id="?" d="{_path(part)}"/>'
        names[part.attrib["id"]] = definitions.setdefault(text, f"d{len(definitions)}")
    leaves = [leaf for child in root if child.tag == "g" for leaf in _leaves(child, "", classes, names)]
    body = "\n".join(_in_clip(clip, [line for _, line in own]) for clip, own in groupby(leaves, itemgetter(0)))
    used = set(re.findall(r"#(d\d+)", body + " ".join(classes)))
    kept = (text.replace("?", name, 1) for text, name in definitions.items() if name in used)
    width, height = (_short(float(part)) for part in root.attrib["viewBox"].split()[2:])
    rules = "\n".join(f".{name}{{{rule}}}" for rule, name in classes.items())
    dark = ";".join(f"--{colour.name}:{colour.dark}" for colour in COLOURS.values() if f"--{colour.name}," in rules)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
        f'viewBox="0 0 {width} {height}">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n"
        f"<style>\nsvg{{font-family:{FONTS};stroke-linejoin:round}}\n{rules}\n"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n</style>\n<defs>{''.join(kept)}</defs>\n{body}\n</svg>\n"
    )


def _leaves(
    node: ElementTree.Element, clip: str, classes: dict[str, str], names: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """What is drawn, in order, each with its clip; groups are only kept where they move their children."""
    clip = node.attrib.pop("clip-path", clip)
    if node.tag == "g" and "style" not in node.attrib and "transform" not in node.attrib:
        children = [child for child in node if child.tag != "defs"]
        if node.attrib.get("id", "").startswith("matplotlib.axis"):
            # The lines of a grid before the labels of its axis, so that they are neighbours.
            lines = [line for child in children for line in _leaves(child, clip, classes, names)]
            yield from sorted(lines, key=lambda leaf: leaf[1].startswith("<text"))
        else:
            for child in children:
                yield from _leaves(child, clip, classes, names)
    else:
        yield _value(clip, names), _written(node, classes, names)


def _written(node: ElementTree.Element, classes: dict[str, str], names: dict[str, str]) -> str:
    """An element without what it need not say."""
    own = dict(node.attrib)
    parts = [part.strip() for part in own.pop("style", "").split(";")]
    told = (each for each in parts if each and each not in _DEFAULTS and not each.startswith(_NEVER))
    rule = ";".join(sorted(_value(each, names) for each in told))
    kept = {"class": classes.setdefault(rule, _letters(len(classes)))} if rule else {}
    if link := own.pop(_LINK, own.pop("href", "")):
        kept["href"] = "#" + names.get(link[1:], link[1:])
    for name, value in own.items():
        if name == "d":
            kept[name] = _path(node)
        elif name in ("x", "y", "width", "height"):
            kept[name] = _short(float(value))
        elif name == "transform" and not re.match(r"rotate\(-?0 ", value):
            kept[name] = re.sub(r"(?<=[ (])-?\d+\.\d+", lambda match: _short(float(match[0])), value)
    head = "".join(f' {name}="{escape(value)}"' for name, value in kept.items())
    inner = escape((node.text or "").strip(), quote=False)
    inner += "".join(_written(child, classes, names) for child in node if child.tag != "defs")
    return f"<{node.tag}{head}>{inner}</{node.tag}>" if inner else f"<{node.tag}{head}/>"


def _in_clip(clip: str, lines: Sequence[str]) -> str:
    """Neighbours with one clip, in a group that has it: paths of one style as one path, marks of one as a group."""
    body = "\n".join(lines)
    while (shorter := _PATHS.sub(r"\1\3", body)) != body:
        body = shorter
    body = _MARKS.sub(lambda marks: f"<g{marks[1]}>{marks[0].replace(marks[1], '')}</g>", body)
    return f'<g clip-path="{clip}">{body}</g>' if clip else body


def _attributes(node: ElementTree.Element) -> str:
    """The lines of a hatch, whose style is that of no class."""
    parts = (part.strip().split(": ", 1) for part in node.attrib.get("style", "").split(";") if ":" in part)
    shown = "".join(f' {name}="{_value(value, {})}"' for name, value in parts if name not in _NEVER)
    return f'<path d="{_path(node)}"{shown}/>'


def _value(text: str, names: dict[str, str]) -> str:
    """A property; the colours of `style.COLOURS` become custom properties, and references follow their new names."""
    text = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{COLOURS[m[0]].name},{m[0]})" if m[0] in COLOURS else m[0], text)
    text = re.sub(r"url\(#(\w+)\)", lambda match: f"url(#{names.get(match[1], match[1])})", text)
    return re.sub(r"(\d\.\d\d)\d+", r"\1", text).replace(": ", ":")


def _letters(number: int) -> str:
    """a to z, then ba, bb, ..."""
    head, last = divmod(number, 26)
    return (_letters(head) if head else "") + chr(ord("a") + last)


def _short(number: float, digits: int = 1) -> str:
    text = f"{number:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _path(node: ElementTree.Element) -> str:
    """A path's data with as few digits and blanks as it needs."""
    text = _NUMBER.sub(lambda match: _short(float(match[0])), node.attrib["d"])
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", text).strip().replace("\n", " ")
