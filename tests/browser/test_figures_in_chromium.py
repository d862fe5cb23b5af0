"""The figures as a browser lays them out, in both widths: no text leaves, meets another, or is crossed by a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from figure_faults import FAULTS
from pages import DESKTOP, PHONE, opened, size


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
