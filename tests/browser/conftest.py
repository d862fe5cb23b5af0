"""A headless Chromium, and the report made from synthetic inputs for it to open."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from looks import DESKTOP, size, theme
from support import ROOT

UNIT = Path(__file__).resolve().parents[1] / "unit"

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage"
).split()


def missing() -> str | None:
    """Why no browser can be started, or None."""
    if importlib.util.find_spec("selenium") is None:
        return "the Python package selenium is not installed"
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "Chromium is not installed (Debian package chromium)"
    if not shutil.which("chromedriver"):
        return "ChromeDriver is not installed (Debian package chromium-driver)"
    return None


def pytest_collection_modifyitems(items):
    reason = missing()
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One Chromium for all tests, with the requests it makes and what its console says logged."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.command_executor.client_config.timeout = 300
    driver.set_script_timeout(30)
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


@pytest.fixture(
    scope="session",
    params=["synthetic", pytest.param("default run", marks=pytest.mark.containers)],
)
def report(request, tmp_path_factory) -> Path:
    """The report to test: one made from synthetic rows, some of them stale, and the one that the default run makes."""
    if request.param == "default run":
        request.getfixturevalue("default_run")
        return ROOT / "reports"
    sys.path.insert(0, str(UNIT))
    try:
        from synthetic import World
        from test_report import make
    finally:
        sys.path.remove(str(UNIT))
    return make(World(tmp_path_factory.mktemp("paper"), stale=("ladder.smem",)).write()).parent
