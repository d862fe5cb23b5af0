"""What was injected into a page does not run in Chromium."""

from __future__ import annotations

import pytest
from pages import opened

INJECTED = {
    "a script": "<script>document.title = 'injected'</script>",
    "an event handler": '<img src="data:,x" onerror="document.title = \'injected\'">',
    "a script beside the page": '<script src="injected.js"></script>',
    "another base": '<base href="https://example.org/"><a id="lost" href="claims.html">claims</a>',
}


@pytest.mark.parametrize("report", ["synthetic"], indirect=True)
@pytest.mark.parametrize("what", INJECTED)
def test_what_is_injected_does_not_run(page, report, tmp_path, what):
    (tmp_path / "injected.js").write_text("document.title = 'injected'")
    text = (report / "kernels/ladder.smem.html").read_text()
    harmed = tmp_path / "harmed.html"
    harmed.write_text(text.replace('<main id="main">', f'<main id="main">{INJECTED[what]}'))
    opened(page, harmed)
    assert page.title and page.title != "injected"
    assert any("Content Security Policy" in each["message"] for each in page.get_log("browser"))
    if what == "another base":
        assert page.execute_script("return document.getElementById('lost').href").startswith("file:")
