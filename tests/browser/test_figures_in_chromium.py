"""The figures as a browser lays them out, in both widths: no text leaves, meets another, or is crossed by a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from figure_faults import FAULTS
from pages import DESKTOP, PHONE, opened, size

PLANTED = """
const svg = [...document.querySelectorAll("figure svg")].find((each) => each.checkVisibility());
const text = svg.querySelector("text:not([transform]):not(:empty)");
const copy = text.parentNode.appendChild(text.cloneNode(true));
const gone = text.parentNode.appendChild(text.cloneNode(true));
gone.setAttribute("x", "-50");
const line = document.createElementNS(svg.namespaceURI, "path"), y = Number(text.getAttribute("y")) - 2;
line.setAttribute("d", `M0 ${y}L${svg.viewBox.baseVal.width} ${y}`);
line.style.cssText = "fill: none; stroke: #123456";
svg.append(line);
"""


def drawn(report: Path) -> list[Path]:
    """The pages with figures."""
    families = [path for path in sorted((report / "families").glob("*.html")) if not path.stem.endswith("-rows")]
    return [report / "index.html", *families]


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_every_text_of_a_figure_stands_clear(page, report, width):
    size(page, width)
    faults, figures = [], 0
    for path in drawn(report):
        opened(page, path)
        figures += page.execute_script(
            "return [...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility()).length"
        )
        faults += [f"{path.name}: {each}" for each in page.execute_script(FAULTS)]
    assert figures > 3
    assert faults == []


@pytest.mark.parametrize("report", ["synthetic"], indirect=True)
def test_a_planted_fault_is_found(page, report):
    opened(page, report / "families" / "ladder.html")
    page.execute_script(PLANTED)
    found = "\n".join(page.execute_script(FAULTS))
    assert "leaves the figure" in found and "meets" in found and "a line crosses" in found
