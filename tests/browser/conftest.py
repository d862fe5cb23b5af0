"""A headless Chromium, and the report made from synthetic inputs for it to open."""

from pathlib import Path

import pytest
from pages import DESKTOP, missing, size, started, theme
from support import ROOT


def pytest_collection_modifyitems(items):
    reason = missing()
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One Chromium for all tests."""
    driver = started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser):
    """The browser at desktop width in light mode, with empty logs."""
    size(browser, DESKTOP)
    theme(browser, "light")
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    return browser


@pytest.fixture(scope="session", params=["synthetic", pytest.param("default run", marks=pytest.mark.containers)])
def report(request, tmp_path_factory) -> Path:
    """The report to test: one made from synthetic rows, some of them stale, and the one that the default run makes."""
    if request.param == "default run":
        request.getfixturevalue("default_run")
        return ROOT / "reports"
    from synthetic import World
    from test_report import make

    other = World(tmp_path_factory.mktemp("gpus") / "other", sizes=(4096,), samples=False, gpu="Other GPU").write()
    return make(World(tmp_path_factory.mktemp("paper"), stale=("ladder.smem",)).write(), other=other).parent
