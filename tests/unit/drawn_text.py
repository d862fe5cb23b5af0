"""Where an SVG's texts lie, by the widths of the font that it was laid out with."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_SVG = "{http://www.w3.org/2000/svg}"
_SHARE = {"start": 0.0, "middle": 0.5, "end": 1.0}


@dataclass(frozen=True)
class Box:
    """A text, the size of its letters, and its four corners."""

    text: str
    size: float
    corners: tuple[tuple[float, float], ...]

    def inside(self, width: float, height: float) -> bool:
        """Whether it lies in a picture of that size, but for half a point."""
        return all(-0.5 <= x <= width + 0.5 and -0.5 <= y <= height + 0.5 for x, y in self.corners)

    def meets(self, other: Box) -> bool:
        """Whether the two overlap: no side of either separates them by less than half a point."""
        for ax, ay in (*_sides(self), *_sides(other)):
            one, two = ([x * ax + y * ay for x, y in box.corners] for box in (self, other))
            if min(max(one), max(two)) - max(min(one), min(two)) <= 0.5:
                return False
        return True


def _sides(box: Box) -> list[tuple[float, float]]:
    """The directions of two sides, of length 1."""
    return [
        ((bx - ax) / (math.hypot(bx - ax, by - ay) or 1.0), (by - ay) / (math.hypot(bx - ax, by - ay) or 1.0))
        for (ax, ay), (bx, by) in pairwise(box.corners[:3])
    ]


def size_of(svg: str) -> tuple[float, float]:
    """Width and height of the picture."""
    width, height = (float(part) for part in ElementTree.fromstring(svg).attrib["viewBox"].split()[2:])
    return width, height


def boxes(svg: str) -> list[Box]:
    """The texts of a slim SVG."""
    rules = dict(re.findall(r"^\.(\w+)\{(.*?)\}$", svg, re.MULTILINE))
    return [
        _box(text, rules.get(text.get("class", ""), "")) for text in ElementTree.fromstring(svg).iter(_SVG + "text")
    ]


def _box(element: ElementTree.Element, rule: str) -> Box:
    style = dict(part.split(":", 1) for part in rule.split(";") if part)
    size = float(style.get("font-size", "10px").removesuffix("px"))
    font = FontProperties(family="DejaVu Sans", size=size, weight=int(style.get("font-weight", "400")))
    text = element.text or ""
    width = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    x, y = float(element.get("x", "0")), float(element.get("y", "0"))
    left = x - width * _SHARE[style.get("text-anchor", "start")]
    corners = [(left, y + 0.18 * size), (left + width, y + 0.18 * size)]
    corners += [(right, y - 0.72 * size) for right in (left + width, left)]
    for name, numbers in reversed(re.findall(r"(\w+)\(([^)]*)\)", element.get("transform", ""))):
        corners = [_moved(corner, name, [float(number) for number in numbers.split()]) for corner in corners]
    return Box(text, size, tuple(corners))


def _moved(corner: tuple[float, float], name: str, numbers: Sequence[float]) -> tuple[float, float]:
    """A corner after a translation, or a rotation in degrees about a point."""
    x, y = corner
    if name == "translate":
        return x + numbers[0], y + numbers[1]
    assert name == "rotate", name
    cx, cy = numbers[1:] or (0.0, 0.0)
    sine, cosine = math.sin(math.radians(numbers[0])), math.cos(math.radians(numbers[0]))
    return cx + (x - cx) * cosine - (y - cy) * sine, cy + (x - cx) * sine + (y - cy) * cosine


def faults(svg: str) -> list[str]:
    """Texts that leave the picture, and pairs that overlap."""
    found, size = boxes(svg), size_of(svg)
    outside = [f"{box.text!r} leaves the picture" for box in found if not box.inside(*size)]
    return outside + [f"{a.text!r} meets {b.text!r}" for a, b in combinations(found, 2) if a.meets(b)]
