"""The report in Firefox: pages open without errors, links land, numbers show their evidence, filters work.

    PYTHONPATH=workflow envs/run python tests/campaigns/firefox.py --report reports --firefox /usr/bin/firefox-esr

Runs tests of tests/browser through WebDriver BiDi, which Firefox speaks itself, so that no geckodriver is needed, and
prints a line for each. It is not part of the test suite: Firefox and its libraries are 300 MB more to install.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websocket

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("workflow", "tests", "tests/unit", "tests/browser")]

import test_paper  # noqa: E402
from bundle_links import links_to_rows  # noqa: E402
from looks import DESKTOP, PHONE  # noqa: E402
from pages import kinds, opened  # noqa: E402

WATCH = (
    "() => { self.broken = []; addEventListener('securitypolicyviolation', (e) => broken.push(e.violatedDirective)) }"
)


class Firefox:
    """A headless Firefox as far as the tests of tests/browser use a driver."""

    def __init__(self, program: str, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [program, "--headless", "--no-remote", "--profile", str(profile), f"--remote-debugging-port={port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = self._connected(f"ws://127.0.0.1:{port}/session")
        self._count = 0
        self.said: list[str] = []
        self.version = self._call("session.new", capabilities={})["capabilities"]["browserVersion"]
        self._call("session.subscribe", events=["log.entryAdded"])
        self._call("script.addPreloadScript", functionDeclaration=WATCH)
        self._context = self._call("browsingContext.getTree")["contexts"][0]["context"]

    def _connected(self, address: str) -> websocket.WebSocket:
        for _ in range(100):
            try:
                return websocket.create_connection(address, timeout=60, suppress_origin=True)
            except OSError:
                time.sleep(0.3)
        raise SystemExit("Firefox did not start")

    def _call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("method") == "log.entryAdded" and told["params"]["level"] in ("warn", "error"):
                self.said.append(told["params"]["text"])
            if told.get("id") == self._count:
                if "error" in told:
                    raise AssertionError(f"{method}: {told['message']}")
                return told["result"]

    def _run(self, function: str, arguments: tuple[Any, ...]) -> Any:
        told = self._call(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[{"type": "string", "value": json.dumps(arguments)}],
            awaitPromise=True,
            target={"context": self._context},
        )
        if told["type"] == "exception":
            raise AssertionError(told["exceptionDetails"]["text"])
        return json.loads(told["result"].get("value", "null"))

    def execute_script(self, script: str, *arguments: Any) -> Any:
        function = f"(given) => JSON.stringify((function () {{ {script} }})(...JSON.parse(given)) ?? null)"
        return self._run(function, arguments)

    def execute_async_script(self, script: str, *arguments: Any) -> Any:
        if waits := re.fullmatch(r"setTimeout\(arguments\[0\], (\d+)\)", script):
            time.sleep(10 * int(waits[1]) / 1000)  # here, since a page that is left never answers
            return None
        inner = f"(function () {{ {script} }})(...JSON.parse(given), done)"
        return self._run(f"(given) => new Promise((done) => {inner}).then((x) => JSON.stringify(x ?? null))", arguments)

    def get(self, address: str) -> None:
        self._call("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def refresh(self) -> None:
        self._call("browsingContext.reload", context=self._context, wait="complete")

    def back(self) -> None:
        self._call("browsingContext.traverseHistory", context=self._context, delta=-1)

    def press(self, key: str) -> None:
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self._call("input.performActions", context=self._context, actions=[keyboard])

    def size(self, width: int) -> None:
        self._call("browsingContext.setViewport", context=self._context, viewport={"width": width, "height": 900})

    @property
    def current_url(self) -> str:
        return str(self.execute_script("return location.href"))

    def quit(self) -> None:
        self._socket.close()
        self.process.terminate()
        self.process.wait(30)


def opens(page: Firefox, report: Path) -> str:
    """Every kind of page, its search and an evidence box: nothing is logged, and no policy broken."""
    others = [report / f"{name}.html" for name in ("gpus", "reproduce", "runs", "corrections")]
    places = [*kinds(report).values(), *others]
    for path in places:
        page.said.clear()
        opened(page, path)
        page.execute_script("document.querySelector('.search input').focus()")
        page.execute_script("document.querySelector('main a[href*=\"#row-\"]')?.click()")
        page.execute_async_script("setTimeout(arguments[0], 400)")
        assert page.execute_script("return broken") == [], path
        assert page.said == [], (path, page.said)
    return f"{len(places)} pages"


def lands(page: Firefox, report: Path) -> str:
    places = links_to_rows(report)
    for width in (DESKTOP, PHONE):
        page.size(width)
        for place, fragment in random.Random(1).sample(places, 60):
            opened(page, report / place, fragment)
            assert test_paper.arrived(page), f"{place}#{fragment} at {width} px"
    page.size(DESKTOP)
    return "60 addresses at 1440 and at 390 px"


def clicks(page: Firefox, report: Path) -> str:
    for kind in ("paper", "family", "claims"):
        test_paper.test_a_click_on_a_number_shows_its_evidence_and_leads_to_its_row(page, report, kind)
    return "8 numbers of the paper, a family and the claims"


def keys(page: Firefox, report: Path) -> str:
    opened(page, report / "index.html")
    first = "[...document.querySelectorAll('a[href*=\"#row-\"]')].find((each) => each.checkVisibility())"
    page.execute_script(f"{first}.focus()")
    page.press("\ue007")
    page.execute_async_script("setTimeout(arguments[0], 400)")
    assert page.execute_script("return Boolean(document.querySelector('dialog[open]'))")
    page.press("\ue00c")
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.execute_script(f"return !document.querySelector('dialog[open]') && document.activeElement === {first}")
    return "Enter opens the evidence, Escape closes it"


def filters(page: Firefox, report: Path) -> str:
    test_paper.test_claims_begin_with_what_was_judged(page, report)
    test_paper.test_filters_count_and_stay_in_the_address(page, report)
    test_paper.test_words_find_and_an_empty_choice_says_so(page, report)
    test_paper.test_a_link_to_a_filtered_claim_shows_it(page, report)
    return "counts, reload, back, address, words"


def policy(page: Firefox, report: Path) -> str:
    text = (report / "kernels/ladder.smem.html").read_text()
    with tempfile.TemporaryDirectory() as folder:
        harmed = Path(folder) / "harmed.html"
        injected = "<script>document.title = 'injected'</script>"
        harmed.write_text(text.replace('<main id="main">', f'<main id="main">{injected}'))
        opened(page, harmed)
        assert page.execute_script("return document.title") != "injected"
        assert page.execute_script("return broken.length") > 0
    return "an injected script does not run"


CHECKS: tuple[Callable[[Firefox, Path], str], ...] = (opens, lands, clicks, keys, filters, policy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--firefox", default="firefox-esr", help="the program")
    arguments = parser.parse_args()
    if shutil.which(arguments.firefox) is None:
        parser.error(f"{arguments.firefox} is not installed")
    if not (arguments.report / "index.html").is_file():
        parser.error(f"{arguments.report} holds no report; run the target 'report' first")
    failed = 0
    with tempfile.TemporaryDirectory() as profile:
        page = Firefox(arguments.firefox, Path(profile))
        try:
            print(f"Firefox {page.version}")
            for check in CHECKS:
                try:
                    said = check(page, arguments.report.resolve())
                except AssertionError as error:
                    said, failed = f"FAILED: {error}", failed + 1
                print(f"{check.__name__}: {said}", flush=True)
        finally:
            page.quit()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
