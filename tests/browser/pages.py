"""Chromium, and what the tests ask it to open and how wide."""

import importlib.util
import shutil
from pathlib import Path

PHONE, DESKTOP = 390, 1440
"""Widths of the screens that pages are looked at on, in CSS pixels."""


def size(browser, width: int, height: int = 900) -> None:
    override = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)


def theme(browser, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


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


def started(profile: Path):
    """A headless Chromium with this profile folder, which logs the requests it makes and what its console says."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.command_executor.client_config.timeout = 300
    driver.set_script_timeout(120)  # a busy machine's, which also makes the report meanwhile
    return driver


KINDS = (
    *("index.html", "claims.html", "leaderboard.html"),
    *("families/ladder.html", "kernels/ladder.smem.html", "baselines/cublas.sgemm.html"),
)
"""A page of each kind."""


def script(*names: str) -> str:
    """The scripts of these names, one behind the other."""
    return "".join(Path(__file__).with_name(f"{name}.js").read_text() for name in names)


def opened(page, path: Path, fragment: str = ""):
    """The page at `path`, loaded anew."""
    page.get("about:blank")
    page.get(path.as_uri() + (f"#{fragment}" if fragment else ""))
    return page


def waited(page, condition: str) -> None:
    """Wait until a condition in JavaScript holds."""
    page.execute_async_script(
        f"const done = arguments[0]; const wait = () => ({condition}) ? done() : setTimeout(wait, 20); wait()"
    )
