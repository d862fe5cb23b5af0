"""The pages by axe-core: WCAG 2.2 AA and best practices, in light, dark and on a phone, with everything unfolded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DESKTOP, KINDS, PHONE, kinds, opened, size, theme

ROWS = 40
"""Rows of a table that are looked at. One template writes all of them, and axe takes 20 s for the claims."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

AUDIT = """
const [rules, rows, done] = arguments;
for (const each of document.querySelectorAll("details")) each.open = true;
// What is out of sight has an estimated size until it is laid out, and would seem to overlap what follows.
const sheet = new CSSStyleSheet();
sheet.replaceSync("* { content-visibility: visible !important }");
document.adoptedStyleSheets.push(sheet);
for (const body of document.querySelectorAll("tbody")) [...body.rows].slice(rows).forEach((row) => row.remove());
axe.run(document, {runOnly: rules, resultTypes: ["violations"], preload: false}).then(
  ({violations}) => done(violations.map(({id, nodes}) => `${id}: ${nodes[0].html}`)), (error) => done([`${error}`]));
"""


@pytest.fixture(scope="module")
def axe(validators: Path) -> str:
    """The text of axe-core."""
    [found] = (validators.parent / "lib").glob("python*/site-packages/axe_playwright_python/axe.min.js")
    return found.read_text()


def violations(page, axe: str) -> list[str]:
    page.execute_script(axe)
    return page.execute_async_script(AUDIT, RULES, ROWS)


@pytest.mark.parametrize(("scheme", "width"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_violation(page, report, axe, kind, scheme, width):
    size(page, width)
    theme(page, scheme)
    opened(page, kinds(report)[kind])
    assert violations(page, axe) == []
