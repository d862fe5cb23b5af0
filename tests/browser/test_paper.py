"""The report in a real browser: opened from disk, its links arrive, it filters, fits a phone, prints, and is safe."""

import base64
import gzip
import json
import math
import random
import re
import time
import zipfile
from statistics import median

import pytest
from bundle_links import dead_links, links_to_rows
from pages import DESKTOP, KINDS, PHONE, opened, script, size, theme, waited

from gemmrepro.judge.rules import DECIDED, VERDICTS
from gemmrepro.paper import bundle

FIRST_VIEW, FOLDER = 300_000, 40_000_000
"""Most bytes of index.html, and of the whole report without its recordings."""

MOST = (25_000, 5_000, 1_250, 1_200)
"""Most elements of a page, of those that it lays out at once, cells of a table among these, and elements of an SVG."""

ROWS = "[...document.querySelectorAll('#claims-table tr[data-k]')]"


def shown(page) -> int:
    return page.execute_script(f"return {ROWS}.filter(r => !r.hidden).length")


def choose(page, name: str, value: str) -> None:
    kind = "input" if name == "words" else "change"
    page.execute_script(
        "const field = document.forms['claim-filters'].elements[arguments[0]];"
        "field.value = arguments[1]; field.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
        name,
        value,
        kind,
    )
    page.execute_async_script("setTimeout(arguments[0], 50)")


def still(page) -> None:
    """Wait until the page has not scrolled for a tenth of a second; without scripts in the page, which may be off."""
    last, same = -1, 0
    while same < 3:
        now = page.execute_script("return scrollY")
        same = same + 1 if now == last else 0
        last = now
        time.sleep(0.03)


def arrived(page) -> bool:
    """Whether the target is in the upper half of the screen, or as far up as the end of its page lets it."""
    still(page)
    return page.execute_script(
        "const box = document.querySelector(':target')?.getBoundingClientRect(); if (!box) return false;"
        " const end = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;"
        " return box.top >= 0 && (box.top <= innerHeight / 2 || (end && box.top < innerHeight))"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_opens_searches_and_answers_without_errors_or_requests(page, report, kind):
    opened(page, report / kind)
    page.execute_script("document.querySelector('.search input').focus()")
    waited(page, "typeof gemmreproSearch === 'function'")
    number = "document.querySelector('main a[href*=\"#row-\"]')"
    if page.execute_script(f"return Boolean({number})"):
        page.execute_script(f"{number}.click()")
        waited(page, "document.querySelector('dialog[open]')")
    assert [entry["message"] for entry in page.get_log("browser")] == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    wanted = (report.as_uri() + "/", "data:", "about:")
    assert [url for url in sent if not url.startswith(wanted)] == []


def test_pages_keep_their_budgets(page, report):
    paper, sizes = report / "index.html", {path: path.stat().st_size for path in report.rglob("*.*")}
    assert sizes[paper] <= FIRST_VIEW and len(gzip.compress(paper.read_bytes())) <= 80_000
    assert sizes[report / "claims.html"] <= 700_000
    kernels = {path: size for path, size in sizes.items() if path.parent.name == "kernels"}
    assert median(kernels.values()) <= 80_000 and max(kernels.values()) <= 600_000
    assert max(size for path, size in sizes.items() if path.parent.name == "families") <= 900_000
    assert sizes[report / "assets/paper.js"] <= 26_000 and sizes[report / "assets/paper.css"] <= 26_000
    assert sizes[report / "assets/search.js"] <= 250_000
    assert sum(path.stat().st_size for path in bundle.members(report) if path.name != "recordings.zip") <= FOLDER
    opened(page, paper)
    elements, screens, words = page.execute_script(
        "return [document.querySelectorAll('*').length, document.documentElement.scrollHeight / innerHeight,"
        " document.body.innerText.split(/\\s+/).length]"
    )
    assert elements <= 10_000 and screens <= 20 and words <= 4_000
    # Closed sections and rows out of sight wait, so that a slow phone is not blocked: the pages' sizes, not times.
    largest = sorted(kernels, key=lambda path: kernels[path])[-3:]
    for path in (*report.glob("*.html"), *(report / "families").glob("*.html"), *largest):
        opened(page, path)
        counts = page.execute_script(
            "const all = [...document.body.querySelectorAll('*')], sight = {contentVisibilityAuto: true};"
            "const cells = (t) => [...t.querySelectorAll('td')].filter(each => each.checkVisibility(sight)).length;"
            "const most = (found) => Math.max(0, ...found);"
            "return [all.length, all.filter(each => each.checkVisibility(sight)).length,"
            " most([...document.querySelectorAll('table')].map(cells)),"
            " most([...document.querySelectorAll('svg')].map(each => each.querySelectorAll('*').length))]"
        )
        assert all(count <= most for count, most in zip(counts, MOST, strict=True)), (path, counts)


def test_the_whole_bundle_resolves_in_an_empty_folder(report, tmp_path):
    bundle.pack(report, tmp_path / "report.zip")
    with zipfile.ZipFile(tmp_path / "report.zip") as packed:
        packed.extractall(tmp_path)
    assert dead_links(tmp_path / "report") == []


@pytest.mark.parametrize(("width", "script", "count"), [(PHONE, True, 30), (DESKTOP, True, 30), (DESKTOP, False, 10)])
def test_random_links_arrive_at_their_row(page, report, width, script, count):
    size(page, width)
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    try:
        for place, fragment in random.Random(count).sample(links_to_rows(report), count):
            opened(page, report / place, fragment)
            assert arrived(page), f"{place}#{fragment}"
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_evidence_by_keyboard(page, report):
    from selenium.webdriver.common.keys import Keys

    opened(page, report / "index.html")
    first = "[...document.querySelectorAll('a[href*=\"#row-\"]')].find(a => a.checkVisibility())"
    link = page.execute_script(f"const a = {first}; a.focus(); return a")
    link.send_keys(Keys.ENTER)
    waited(page, "document.querySelector('dialog[open]')")
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.execute_script("return !document.querySelector('dialog[open]')")
    assert page.execute_script(f"return document.activeElement === {first}")


def test_claims_begin_with_what_the_articles_state_and_was_judged(page, report):
    opened(page, report / "claims.html")
    seen = page.execute_script(
        f"return {ROWS}.filter(r => !r.hidden).map(r => [r.dataset.register, r.dataset.verdict])"
    )
    judged = {*DECIDED, "undecided", "not comparable here", "consistent", "contradictory"}
    assert seen and {register for register, _ in seen} == {"article"} and {verdict for _, verdict in seen} <= judged
    folded = f"{ROWS}.filter(r => !r.hidden && r.querySelector('details[open]')).length"
    assert page.execute_script(f"return {folded}") == 0


def test_heads_sort_and_sorting_stays_in_the_address(page, report):
    """Furthest from print in one unit; by verdict, best first; a third click restores the articles' groups."""
    opened(page, report / "claims.html", "verdict=")
    cells = "[...document.querySelectorAll('#claims-table tr[data-k]')].map(r => r.cells[{}].textContent.trim())"
    click = "document.querySelectorAll('#claims-table th button')[{}].click()"
    before = page.execute_script(f"return {cells.format(0)}")
    page.execute_script(click.format(3))
    numbers = [cell.replace(",", "") for cell in page.execute_script(f"return {cells.format(3)}")]
    far = [abs(math.log(float(number))) for number in numbers if number]
    assert len(far) >= 10 and far == sorted(far, reverse=True) and not any(numbers[len(far) :])
    page.refresh()
    assert page.execute_script("return document.querySelector('[aria-sort]').ariaSort") == "ascending"
    page.execute_script(click.format(4))
    verdicts = page.execute_script(f"return {cells.format(4)}")
    order = [verdict for verdict in VERDICTS if verdict in {each.split("by share")[0] for each in verdicts}]
    assert [each.split("by share")[0] for each in verdicts] == sorted(
        (each.split("by share")[0] for each in verdicts), key=order.index
    )
    page.execute_script(click.format(4) + ";" + click.format(4))
    assert page.execute_script(f"return {cells.format(0)}") == before


def test_filters_count_and_stay_in_the_address(page, report):
    opened(page, report / "claims.html", "verdict=")
    rows = page.execute_script(f"return {ROWS}.map(r => r.dataset.verdict)")
    assert shown(page) == len(rows) >= 25
    for verdict in sorted(set(rows)):
        choose(page, "verdict", verdict)
        count = shown(page)
        assert count == rows.count(verdict)
        chosen = page.execute_script("return document.querySelector('[name=verdict] option:checked').textContent")
        assert chosen == f"{verdict} ({count})"
    address = page.current_url
    page.refresh()
    assert shown(page) == count
    page.back()
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.current_url != address


def test_words_find_an_empty_choice_says_so_and_a_link_shows_its_claim_all_the_same(page, report):
    opened(page, report / "claims.html", "verdict=")
    total = shown(page)
    choose(page, "words", "coalescing")
    assert 0 < shown(page) < total
    assert f"of {total} claims shown" in page.execute_script("return document.getElementById('claims-shown').value")
    choose(page, "words", "no such word anywhere")
    assert shown(page) == 0
    assert page.execute_script("return document.getElementById('claims-none').checkVisibility()")
    page.execute_script("location.hash = '#claim-ladder-order'")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    assert page.execute_script("return !document.getElementById('claim-ladder-order').hidden")
    page.execute_script("document.querySelector('#claim-filters [type=reset]').click()")
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert shown(page) == total


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("warptile", "kernels/ladder.warptile.html"),
        ("0.937", "claims.html#claim-ladder-ratio-L7"),
        ("93 %", "claims.html#"),
        ("what should I use", "#"),
        ("sustained", ".html"),
        ("Boehm", "index.html#"),
        ("why does warptile lose here", ".html#"),
    ],
)
def test_search_finds_kernels_numbers_sections_and_claims_with_their_verdicts(page, report, words, place):
    opened(page, report / "families/ladder.html")
    found = page.execute_async_script(script("search"), words)
    assert any(place in link for link, _, _ in found), found
    assert all(verdict in VERDICTS for link, _, verdict in found if "claims.html" in link)


def test_evidence_names_the_claims_that_rest_on_it_and_the_smallest_command(page, report):
    opened(page, report / "kernels/ladder.warptile.html")
    page.execute_script("document.querySelector('tr[id$=\"4096x4096x4096-warm\"] td.n a').click()")
    waited(page, "document.querySelector('dialog[open]')")
    said = page.execute_script("return document.querySelector('dialog').innerText")
    links = page.execute_script("return [...document.querySelectorAll('dialog .resting a')].map(a => a.hash)")
    assert "#claim-ladder-ratio-L7" in links and "Published: 0.937" in said
    assert "sizes: [4096], kernels: [ladder.warptile]" in said
    assert "Largest error of an element" in said


@pytest.mark.parametrize("kind", KINDS)
def test_fits_a_small_phone_and_a_tablet(page, report, kind):
    opened(page, report / kind)
    page.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    for width in (320, 768):
        size(page, width)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width, width


def test_a_phone_shows_every_page_and_cell_without_scrolling_sideways(page, report):
    """Rows are cards there, whose cells have their columns' names."""
    size(page, PHONE)
    wide = []
    for path in sorted(report.rglob("*.html")):
        page.get(path.as_uri())
        wide += [f"{path.name}: {label}" for label in page.execute_script(script("wide"))]
    assert wide == []


def test_keyboard_reaches_the_content_soon(page, report):
    opened(page, report / "index.html")
    stops, first = page.execute_script(
        "const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility());"
        "const figure = document.querySelector('.finding');"
        "return [all.filter(e => figure && figure.compareDocumentPosition(e) & 2).length, all[0].className]"
    )
    assert first == "skip" and stops <= 40  # 0 where no finding is drawn


def test_without_script_everything_is_there(page, report):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(page, report / "claims.html")
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown(page) >= 25
    assert page.execute_script("return document.getElementById('claim-filters').hidden")


def test_prints_whole(page, report):
    opened(page, report / "index.html")
    theme(page, "light", "print")
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    hidden = page.execute_script(
        "return ['.site', '.contents'].map(s => getComputedStyle(document.querySelector(s)).display)"
    )
    assert hidden == ["none", "none"]
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert 3 <= max(map(int, re.findall(rb"/Count (\d+)", printed))) <= 20, "pages"


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
