"""The pages by axe-core: WCAG 2.2 AA and best practices, in light, dark and on a phone, with everything unfolded."""

from pathlib import Path

import pytest
from pages import DESKTOP, KINDS, PHONE, opened, script, size, theme

ROWS = 40
"""Rows of a table that are looked at. One template writes all of them, and axe takes 20 s for the claims."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def axe(validators: Path) -> str:
    """The text of axe-core."""
    [found] = (validators.parent / "lib").glob("python*/site-packages/axe_playwright_python/axe.min.js")
    return found.read_text()


def violations(page, axe: str) -> list[str]:
    page.execute_script(axe)
    return page.execute_async_script(script("audit"), RULES, ROWS)


@pytest.mark.parametrize(("scheme", "width"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_violation(page, report, axe, kind, scheme, width):
    size(page, width)
    theme(page, scheme)
    opened(page, report / kind)
    assert violations(page, axe) == []
