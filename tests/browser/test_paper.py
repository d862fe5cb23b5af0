"""The paper in a real browser: it opens from disk, filters, fits a phone, is legible in the dark, and prints."""

from __future__ import annotations

import base64
import json
from urllib.parse import urldefrag

import pytest

CONTRAST = """
const parse = (text) => {
  const found = text.match(/rgba?\\(([^)]+)\\)/);
  if (!found) return null;
  const parts = found[1].split(/[ ,/]+/).filter(Boolean).map(Number);
  return {rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1};
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const found = parse(getComputedStyle(each).backgroundColor);
    if (found && found.alpha === 1) return found.rgb;
  }
  return [255, 255, 255];
};
const worst = new Map();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest("svg, script, style, .skip, [hidden]")) continue;
  const front = parse(getComputedStyle(element).color).rgb;
  const back = behind(element);
  const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
  const ratio = (high + 0.05) / (low + 0.05);
  const key = `${element.tagName}.${element.className} ${front} on ${back}`;
  worst.set(key, ratio);
}
return [...worst].filter(([, ratio]) => ratio < 4.5);
"""


def size(browser, width: int, height: int = 900) -> None:
    override = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)


def theme(browser, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


@pytest.fixture
def page(browser, paper):
    """The paper freshly opened at desktop width in light mode."""
    size(browser, 1280)
    theme(browser, "light")
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(paper.as_uri())
    return browser


def shown(page) -> int:
    return page.execute_script(
        "return [...document.querySelectorAll('#claims-table tbody tr')].filter(r => !r.hidden).length"
    )


def choose(page, name: str, value: str) -> None:
    page.execute_script(
        "const field = document.forms['claim-filters'].elements[arguments[0]];"
        "field.value = arguments[1]; field.dispatchEvent(new Event('input', {bubbles: true}))",
        name,
        value,
    )


def test_opens_without_errors_or_requests(page, paper):
    assert paper.stat().st_size < 13_000_000
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    wanted = (paper.as_uri(), "data:", "about:")
    assert [url for url in sent if not url.startswith(wanted)] == []
    assert page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") in ([], ["data:,"])
    assert "GEMM articles, checked" in page.title


def test_filters(page):
    total = shown(page)
    assert total >= 25
    rows = page.execute_script(
        "return [...document.querySelectorAll('#claims-table tbody tr')].map(r => r.dataset.verdict)"
    )
    for verdict in set(rows):
        choose(page, "verdict", verdict)
        assert shown(page) == rows.count(verdict)
    choose(page, "verdict", "")
    choose(page, "words", "COALESCING dram")
    some = shown(page)
    choose(page, "words", "coalescing")
    assert 0 <= some < shown(page) < total
    assert f"of {total} claims shown" in page.execute_script("return document.getElementById('claims-shown').value")
    choose(page, "words", "no such word anywhere")
    assert shown(page) == 0
    page.execute_script("document.querySelector('#claim-filters button').click()")
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert shown(page) == total


def test_typing_and_tabbing(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    everything = shown(page)
    page.find_element(By.NAME, "words").send_keys("cuBLAS")
    assert 0 < shown(page) < everything
    page.refresh()
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    focused = page.execute_script("return [document.activeElement.className, document.activeElement.offsetLeft]")
    assert focused[0] == "skip" and focused[1] >= 0


def test_a_link_to_a_filtered_claim_shows_it(page):
    choose(page, "words", "no such word anywhere")
    page.execute_script("location.hash = '#claim-ladder-order'")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    assert page.execute_script("return !document.getElementById('claim-ladder-order').hidden")


def test_anchors_resolve(page, paper):
    links = page.execute_script("return [...document.querySelectorAll('a')].map(a => a.href)")
    inside = {urldefrag(link) for link in links if urldefrag(link).url == paper.as_uri()}
    assert len(inside) > 30
    missing = page.execute_script(
        "return arguments[0].filter(id => !document.getElementById(id))", [i.fragment for i in inside]
    )
    assert missing == []


def unpack_all(page) -> None:
    page.execute_script("document.getElementById('unpack').click()")
    page.execute_async_script(
        "const done = arguments[0];"
        "const wait = () => document.getElementById('unpacked').value ? done() : setTimeout(wait, 50); wait()"
    )


def test_bulk_is_unpacked_where_its_section_is_opened(page):
    packed = "return document.querySelectorAll('[data-packed]').length"
    before = page.execute_script(packed)
    assert before > 10
    found = page.execute_async_script(
        "const details = document.querySelector('.kernel details:has([data-packed])'); details.open = true;"
        "const said = () => [details.querySelectorAll('table, pre').length, details.textContent.length];"
        "const done = arguments[0]; setTimeout(() => done(said()), 500)"
    )
    assert found[0] >= 1 and found[1] > 500
    assert page.execute_script(packed) == before - 1
    unpack_all(page)
    assert page.execute_script(packed) == 0
    assert f"{before - 1} parts unpacked" in page.execute_script("return document.getElementById('unpacked').value")
    assert page.execute_script("return document.querySelectorAll('.kernel pre [class^=t-]').length") > 100


def test_a_link_into_a_closed_section_opens_it(page):
    page.execute_script("location.hash = '#rows-ladder'")
    page.execute_async_script("setTimeout(arguments[0], 300)")
    assert page.execute_script(
        "const e = document.getElementById('rows-ladder'); return e.open && !!e.querySelector('td')"
    )


def test_a_number_of_the_abstract_shows_its_claims(page):
    choose(page, "words", "no such word anywhere")
    link = "document.querySelector('.tally a')"
    count = int(page.execute_script(f"return {link}.textContent"))
    page.execute_script(f"{link}.click()")
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert shown(page) == count > 0
    assert page.execute_script("return location.hash") == "#claims"


def test_the_answer_is_on_the_first_screen(page):
    page.execute_script("scrollTo(0, 0)")
    for selector in ("h1", ".abstract p strong", ".tally", ".abstract a[href^='#claim-']"):
        bottom = page.execute_script(
            "return document.querySelector(arguments[0]).getBoundingClientRect().bottom", selector
        )
        assert 0 < bottom < 900, selector


@pytest.mark.parametrize("width", [320, 360, 768, 1280, 1600])
def test_no_sideways_scrolling(page, width):
    size(page, width)
    unpack_all(page)
    page.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    # Laid out at once, not kernel by kernel as each is asked for; and what may scroll by itself is not walked into.
    spill = page.execute_script(
        "const whole = document.createElement('style');"
        " whole.textContent = '.kernel { content-visibility: visible !important }'; document.head.append(whole);"
        " const found = [], walk = element => { for (const e of element.children) {"
        " if (e.matches('.scroll, .plot, pre, svg')) continue;"
        " if (e.getBoundingClientRect().right > innerWidth + 1) found.push(e.tagName + '.' + e.className + e.id);"
        " walk(e); } };"
        " walk(document.querySelector('main')); whole.remove(); return found.slice(0, 5)"
    )
    assert spill == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(page, scheme):
    theme(page, scheme)
    unpack_all(page)
    page.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.execute_script(CONTRAST) == []


def test_dark_mode_reaches_the_figures(page):
    ask = "return getComputedStyle(document.querySelector('.plot svg path')).fill"
    light = page.execute_script(ask)
    theme(page, "dark")
    dark = page.execute_script(ask)
    assert light == "rgb(255, 255, 255)" and dark != light


def test_without_script_the_table_is_whole(page, paper):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(paper.as_uri())
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown(page) >= 25
    assert page.execute_script("return document.getElementById('claim-filters').hidden")
    assert page.execute_script("return document.getElementById('unpack').hidden")
    # What is packed names the file that holds it too.
    assert page.execute_script(
        "return [...document.querySelectorAll('.packed')].every(e => e.querySelector('a, code'))"
    )


def test_prints_whole(page):
    theme(page, "light", "print")
    hidden = page.execute_script(
        "return ['.filters', '.contents'].map(s => getComputedStyle(document.querySelector(s)).display)"
    )
    assert hidden == ["none", "none"]
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    # What is still packed stays so, and says which file holds it.
    assert page.execute_script(
        "return [...document.querySelectorAll('details:not([open])')].every(e => e.querySelector('.packed'))"
    )
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.execute_script("return document.querySelectorAll('details:not([open])').length") > 0
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert printed[:5] == b"%PDF-" and len(printed) > 100_000
