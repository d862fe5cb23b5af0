"""Starting Chromium."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

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
