"""Rewrites matplotlib's SVGs as small ones: text stays text, styles become classes, neighbours alike become one path.

A slim SVG carries its title, its description, and the colours of `style.COLOURS` as custom properties, with those of
dark mode for where the file is opened on its own. On a page the properties of the page take their place.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

from gemmrepro.errors import UserError
from gemmrepro.figures.style import COLOURS, FONTS

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d*\.\d+(?:e-?\d+)?|-?\d+")
_STROKE = re.compile(r"M(-?[\d.]+) (-?[\d.]+)L(-?[\d.]+) (-?[\d.]+)")
_DEFAULTS = {
    "fill-opacity": "1",
    "opacity": "1",
    "stroke-opacity": "1",
    "stroke-width": "1",
    "stroke-linejoin": "round",
    "text-anchor": "start",
    "stroke-dashoffset": "0",
    "font-weight": "400",
}
_NEVER = ("stroke-miterlimit", "font-family", "stroke-linecap", "stroke-linejoin")
"""Properties whose effect nobody can see at the width of these lines, and the font, which all text shares."""


_ALIKE = re.compile(r'<use class="(\w+)" [^>]*/>(?:\n?<use class="\1" [^>]*/>){2,}')
"""Marks in a row that look alike."""

_KINDS = {
    "path": '<path id="{name}" d="{shape}"/>',
    "clip": '<clipPath id="{name}"><rect {shape}/></clipPath>',
    "hatch": '<pattern id="{name}" patternUnits="userSpaceOnUse" width="72" height="72">{shape}</pattern>',
}
"""What may be referred to, and how it is written."""


@dataclass
class _Node:
    """An element: its name, attributes without style, properties of its style, text, and children."""

    name: str
    attributes: dict[str, str]
    style: dict[str, str]
    text: str = ""
    children: list[_Node] = field(default_factory=list)

    @property
    def bare(self) -> bool:
        """A group that does nothing."""
        return self.name == "g" and not self.style and not set(self.attributes) - {"id"}


def slim(svg: str, title: str, description: str) -> str:
    """matplotlib's `svg` with `title` and `description`, a few per cent of its elements and all of its marks.

    Raises:
        UserError: `svg` is no SVG.
    """
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise UserError(f"the figure {title!r} is no SVG ({error}); draw the figures again.") from None
    definitions: dict[tuple[str, str], str] = {}
    names: dict[str, str] = {}
    _collect(root, definitions, names)
    tree = [_hoisted(_read(child, names)) for child in root if child.tag == _SVG + "g"]
    shapes = {f"#{name}": shape for (kind, shape), name in definitions.items() if kind == "path"}
    leaves = [_stroke(leaf, shapes) for node in tree for leaf in _flat(node)]
    shown = _merged(list(_clipped(leaves)))
    classes: dict[str, str] = {}
    used = set(re.findall(r"#(\w+)", " ".join(_references(shown))))
    body = _ALIKE.sub(_grouped, "\n".join(_written(node, classes) for node in shown))
    kept = [_KINDS[kind].format(name=name, shape=shape) for (kind, shape), name in definitions.items() if name in used]
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_short(width)}pt" height="{_short(height)}pt" '
        f'viewBox="0 0 {_short(width)} {_short(height)}">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n"
        f"<style>{_css(classes)}</style>\n<defs>{''.join(kept)}</defs>\n{body}\n</svg>\n"
    )


def _grouped(marks: re.Match[str]) -> str:
    """Such marks with the class at a group of them."""
    return f'<g class="{marks[1]}">' + marks[0].replace(f' class="{marks[1]}"', "").replace("\n", "") + "</g>"


def _collect(root: ElementTree.Element, definitions: dict[tuple[str, str], str], names: dict[str, str]) -> None:
    """Markers and clips by what they are, so that equal ones are kept once; `names` are the new ids by the old."""
    for definition in root.iter(_SVG + "defs"):
        for child in definition:
            if child.tag == _SVG + "path":
                key = ("path", _path(child.attrib["d"], 2))
            elif child.tag == _SVG + "clipPath" and len(child) and child[0].tag == _SVG + "rect":
                edges = ("x", "y", "width", "height")
                key = ("clip", " ".join(f'{edge}="{_rounded(child[0].attrib[edge])}"' for edge in edges))
            elif child.tag == _SVG + "pattern":
                key = ("hatch", "".join(_part(part) for part in child))
            else:
                continue
            names[child.attrib["id"]] = definitions.setdefault(key, f"{key[0][0]}{len(definitions)}")


def _part(part: ElementTree.Element) -> str:
    """The ground or the lines of a hatch."""
    if part.tag == _SVG + "rect":
        return f'<rect width="72" height="72" fill="{_value(part.attrib["fill"])}"/>'
    style = dict(_properties(part.attrib["style"]))
    shown = "".join(f' {name}="{_value(value)}"' for name, value in sorted(style.items()))
    return f'<path d="{_path(part.attrib["d"], 1)}"{shown}/>'


def _read(element: ElementTree.Element, names: Mapping[str, str]) -> _Node:
    """An element with its children; definitions are left out, references renamed, numbers shortened."""
    attributes = dict(element.attrib)
    style = dict(_properties(attributes.pop("style", "")))
    if link := attributes.pop(_LINK, attributes.pop("href", "")):
        attributes["href"] = "#" + names.get(link[1:], link[1:])
    for place in (attributes, style):
        for name, value in place.items():
            if "url(#" in value:
                place[name] = re.sub(r"#(\w+)", lambda m: "#" + names.get(m[1], m[1]), value)
    attributes.pop("{http://www.w3.org/XML/1998/namespace}space", None)
    if "transform" in attributes and re.match(r"rotate\(-?0 ", attributes["transform"]):
        del attributes["transform"]
    for name, value in attributes.items():
        if name in ("x", "y", "width", "height"):
            attributes[name] = _rounded(value)
        elif name == "d":
            attributes[name] = _path(value, 1)
        elif name == "transform":
            attributes[name] = re.sub(r"(?<=[ (])-?\d+\.\d+", lambda m: _short(float(m[0])), value)
    children = [_read(child, names) for child in element if child.tag != _SVG + "defs"]
    return _Node(element.tag.removeprefix(_SVG), attributes, style, element.text or "", children)


def _properties(style: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in style.split(";"))):
        name, value = (each.strip() for each in part.split(":", 1))
        if name not in _NEVER and _DEFAULTS.get(name) != value:
            yield name, value


def _hoisted(node: _Node) -> _Node:
    """The lines of a grid before the labels of its axis, so that they are neighbours."""
    for child in node.children:
        _hoisted(child)
    if node.attributes.get("id", "").startswith("matplotlib.axis"):
        leaves = [leaf for child in node.children for leaf in _flat(child)]
        node.children = sorted(leaves, key=lambda leaf: leaf.name == "text")
    return node


def _stroke(node: _Node, shapes: Mapping[str, str]) -> _Node:
    """A mark that is one straight stroke, such as the end of an interval, as a path, which its neighbours can join."""
    ends = _STROKE.fullmatch(shapes.get(node.attributes.get("href", ""), ""))
    if not ends:
        return node
    x, y = float(node.attributes.pop("x")), float(node.attributes.pop("y"))
    del node.attributes["href"]
    places = [_short(float(part) + (x, y)[place % 2]) for place, part in enumerate(ends.groups())]
    style = {name: value for name, value in node.style.items() if name != "fill"}
    data = f"M{places[0]} {places[1]}L{places[2]} {places[3]}"
    return _Node("path", {**node.attributes, "d": data}, {"fill": "none", **style})


def _flat(node: _Node, clip: str = "") -> Iterator[_Node]:
    """What is drawn, in order; each leaf has its clip."""
    if node.bare or (node.name == "g" and set(node.attributes) <= {"id", "clip-path"} and not node.style):
        for child in node.children:
            yield from _flat(child, node.attributes.get("clip-path", clip))
        return
    node.attributes.pop("id", None)
    if clip and "clip-path" not in node.attributes:
        node.attributes["clip-path"] = clip
    if node.name != "g" or node.children:
        yield node


def _clipped(leaves: list[_Node]) -> Iterator[_Node]:
    """Neighbours with one clip in a group that has it."""
    group: _Node | None = None
    for leaf in leaves:
        clip = leaf.attributes.pop("clip-path", "")
        if not clip:
            group = None
            yield leaf
        elif group is not None and group.attributes["clip-path"] == clip:
            group.children.append(leaf)
        else:
            group = _Node("g", {"clip-path": clip}, {}, "", [leaf])
            yield group


def _merged(nodes: Iterable[_Node]) -> list[_Node]:
    """Neighbouring paths of one style as one path."""
    merged: list[_Node] = []
    for node in nodes:
        node.children = _merged(node.children)
        last = merged[-1] if merged else None
        if last is not None and _plain(last) and _plain(node) and last.style == node.style:
            last.attributes["d"] += node.attributes["d"]
        else:
            merged.append(node)
    return merged


def _plain(node: _Node) -> bool:
    """A path that is nothing but its data and its style."""
    return node.name == "path" and set(node.attributes) == {"d"}


def _references(nodes: list[_Node]) -> Iterator[str]:
    for node in nodes:
        yield from node.attributes.values()
        yield from node.style.values()
        yield from _references(node.children)


def _written(node: _Node, classes: dict[str, str]) -> str:
    attributes = dict(node.attributes)
    if node.style:
        rule = ";".join(f"{name}:{_value(value)}" for name, value in sorted(node.style.items()))
        attributes = {"class": classes.setdefault(rule, _letters(len(classes))), **attributes}
    head = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    inner = escape(node.text.strip(), quote=False) + "".join(_written(child, classes) for child in node.children)
    return f"<{node.name}{head}>{inner}</{node.name}>" if inner else f"<{node.name}{head}/>"


def _value(value: str) -> str:
    """A property's value; the colours of `style.COLOURS` become custom properties."""
    variable = COLOURS.get(value.lower())
    return f"var(--{variable.name},{value.lower()})" if variable else re.sub(r"(\d\.\d\d)\d+", r"\1", value)


def _letters(number: int) -> str:
    """a to z, then ba, bb, ..."""
    head, last = divmod(number, 26)
    return (_letters(head) if head else "") + chr(ord("a") + last)


def _css(classes: Mapping[str, str]) -> str:
    rules = [f".{name}{{{rule}}}" for rule, name in classes.items()]
    dark = ";".join(
        f"--{colour.name}:{colour.dark}" for colour in COLOURS.values() if f"--{colour.name}," in str(rules)
    )
    alone = f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f"\nsvg{{font-family:{FONTS};stroke-linejoin:round}}\n" + "\n".join(rules) + f"\n{alone}\n"


def _rounded(number: str) -> str:
    return _short(float(number))


def _short(number: float, digits: int = 1) -> str:
    text = f"{number:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _path(data: str, digits: int) -> str:
    """A path's data with as few digits and blanks as its place needs."""
    text = _NUMBER.sub(lambda match: _short(float(match[0]), digits), data)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", text).strip().replace("\n", " ")
