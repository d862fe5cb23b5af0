"""The one-file edition in Chromium shows one page at a time, with and without script, alone in its folder."""

from __future__ import annotations

import pytest
from pages import opened, waited

from gemmrepro.paper.single import read, single

# The edition of the default run has 20 MB, which take long to load many times.
pytestmark = pytest.mark.parametrize("report", ["synthetic"], indirect=True)

SHOWN = "return [...document.querySelectorAll('.page')].filter(each => each.checkVisibility()).map(each => each.id)"


@pytest.fixture(scope="module")
def edition(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "gemmrepro.html"
    path.write_text(single(*read(report)))
    return path


@pytest.mark.parametrize("script", [True, False])
def test_one_page_is_shown(page, edition, script):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    try:
        for fragment, shown in (
            ("", "page-index"),
            ("page-kernels-ladder-smem", "page-kernels-ladder-smem"),
            ("claim-ladder-order", "page-claims"),
            ("glossary", "page-index"),
            *([("verdict=partly", "page-claims")] if script else []),
        ):
            opened(page, edition, fragment)
            assert page.execute_script(SHOWN) == [shown], fragment
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert [each["message"] for each in page.get_log("browser")] == []


def test_no_link_is_dead_and_evidence_shows(page, edition):
    opened(page, edition)
    dead = page.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].map(a => decodeURIComponent(a.hash.slice(1)))"
        ".filter(id => id && !id.includes('=') && !document.getElementById(id))"
    )
    assert dead == []
    page.execute_script("document.querySelector('.first a[href^=\"#row-\"]').click()")
    waited(page, "document.querySelector('dialog[open]')")
    page.execute_script("document.querySelector('dialog .places a').click()")
    waited(page, "location.hash.startsWith('#row-')")
    [shown] = page.execute_script(SHOWN)
    assert shown.startswith(("page-kernels-", "page-baselines-"))
