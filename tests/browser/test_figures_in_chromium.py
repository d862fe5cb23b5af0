"""The figures as a browser lays them out, in both widths: no text leaves, meets another, is crossed or hard to read."""

import re
from pathlib import Path

import pytest
from pages import DESKTOP, PHONE, opened, script, size, theme


def drawn(report: Path) -> list[Path]:
    """The pages with figures."""
    families = [path for path in sorted((report / "families").glob("*.html")) if not path.stem.endswith("-rows")]
    return [report / "index.html", *families]


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")])
def test_every_text_of_a_figure_stands_clear(page, report, width, scheme):
    size(page, width)
    theme(page, scheme)
    faults, figures = [], 0
    for path in drawn(report):
        opened(page, path)
        figures += page.execute_script(
            "return [...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility()).length"
        )
        faults += [f"{path.name}: {each}" for each in page.execute_script(script("figure_faults"))]
    assert figures > 1
    assert faults == []


WORDS = """
const copy = document.body.cloneNode(true);
copy.querySelectorAll("svg, script, style, dialog, template, details > :not(summary)").forEach((each) => each.remove());
return copy.textContent.match(/\\S+/g).length
"""
FIRST = """
const first = [...document.querySelectorAll("main figure svg, main table")].filter((each) => each.checkVisibility())[0];
return first ? first.tagName.toLowerCase() : "svg"
"""


def test_a_family_shows_a_figure_before_any_table_and_is_read_in_ten_minutes(page, report):
    """At most 2,500 words, its story of one toolkit; one of which nothing was measured has predictions in a table."""
    for path in drawn(report)[1:]:
        opened(page, path)
        assert page.execute_script(WORDS) <= 2_500, path.name
        assert page.execute_script(FIRST) == "svg" or "Not measured yet" in path.read_text(), path.name
        story = re.findall(r'Measured:</em> <a href="[^"#]*#row-[\w-]+-(cuda\d+)-', path.read_text())
        assert len({*story}) <= 1, path.name
