"""What page_checks.py measures of a report in Chromium, by the same means as the tests of tests/browser."""

from __future__ import annotations

import base64
import contextlib
import csv
import gzip
import importlib.util
import io
import random
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import colour_difference
import figure_faults
import prose
import test_accessibility
import test_figures_in_chromium
import test_published_shown
import test_truth
from bundle_links import dead_links, links_to_rows
from looks import DESKTOP, PHONE, printed_pages, size, theme
from pages import KINDS, kinds, opened, waited
from test_paper import arrived

from gemmrepro import registry
from gemmrepro.paper import archive
from gemmrepro.paper.figures import style
from gemmrepro.paper.figures.findings import stage
from gemmrepro.paper.references import of_articles, references

RECORDED = Path(__file__).resolve().parents[2] / "reports" / "recorded" / "h200"
SLOWER = 4
"""How much slower than this machine the phone is that is emulated."""


@dataclass(frozen=True)
class Report:
    """A report's folder, the browser it is opened in, and the text of axe-core or None."""

    path: Path
    page: Any
    axe: str | None

    @property
    def pages(self) -> list[Path]:
        return sorted(self.path.rglob("*.html"))

    @property
    def index(self) -> Path:
        return self.path / "index.html"


@dataclass(frozen=True)
class Outcome:
    """What was measured, in words, and whether the threshold holds."""

    value: str
    held: bool


def passes(test: Callable[..., None], *arguments: Any, said: str = "pass") -> Outcome:
    """The outcome of a test's function."""
    try:
        test(*arguments)
    except AssertionError as error:
        return Outcome(" ".join(str(error).split())[:200] or "fails", False)
    return Outcome(said, True)


@contextlib.contextmanager
def scripts_off(page: Any) -> Iterator[None]:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@contextlib.contextmanager
def slow_phone(page: Any) -> Iterator[None]:
    size(page, PHONE)
    page.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": 1})
        size(page, DESKTOP)


_NUMBERS = 'document.querySelectorAll(\'main a[href*="#row-"], header a[href*="#row-"]\')'
_CLICK = (
    f"const a = {_NUMBERS}[arguments[0]];"
    " for (let d = a.closest('details'); d; d = d.parentElement.closest('details')) d.open = true;"
    " if (a.closest('tr')) a.closest('tr').hidden = false; a.scrollIntoView(); a.click();"
    " return [a.textContent.trim(), a.href, a.dataset.formula || '']"
)


def clicks(report: Report) -> tuple[Outcome, Outcome]:
    """K1 and K3: 60 random numbers a width, clicked on a fresh page; what they show, and where they lead."""
    page, landed, said, tried = report.page, 0, 0, 0
    places = [(path, path.read_text().count("#row-")) for path in test_truth.pages(report.path)]
    places = [(path, count) for path, count in places if count]
    for width in (DESKTOP, PHONE):
        size(page, width)
        chance = random.Random(width)
        for path in chance.choices([path for path, _ in places], [count for _, count in places], k=60):
            opened(page, path)
            if not (count := page.execute_script(f"return {_NUMBERS}.length")):
                continue
            tried += 1
            number, target, formula = page.execute_script(_CLICK, chance.randrange(count))
            waited(page, "document.querySelector('dialog[open]')")
            words = page.execute_script("return document.querySelector('dialog[open]').innerText")
            said += number in words and (not formula or "Computed" in words)
            page.execute_script("document.querySelector('dialog[open] .places a').click()")
            page.execute_async_script("setTimeout(arguments[0], 200)")
            landed += page.current_url == target and arrived(page)
    size(page, DESKTOP)
    return Outcome(f"{landed} of {tried}", landed == tried), Outcome(f"{said} of {tried}", said == tried)


def pasted(report: Report) -> Outcome:
    """K2: 60 random addresses, with and without script, in both widths."""
    page, landed, tried = report.page, 0, 0
    for width, script in ((DESKTOP, True), (PHONE, True), (DESKTOP, False)):
        size(page, width)
        with contextlib.nullcontext() if script else scripts_off(page):
            for place, fragment in random.Random(2).sample(links_to_rows(report.path), 60):
                opened(page, report.path / place, fragment)
                tried += 1
                landed += arrived(page)
    size(page, DESKTOP)
    return Outcome(f"{landed} of {tried}", landed == tried)


def unpacked(report: Report) -> Outcome:
    """K4: the links of the zip file, unpacked alone."""
    with tempfile.TemporaryDirectory() as folder:
        archive.pack(report.path, Path(folder) / "report.zip")
        with zipfile.ZipFile(Path(folder) / "report.zip") as packed:
            packed.extractall(folder)
        dead = dead_links(Path(folder) / "report")
    return Outcome(f"{len(dead)} dead", not dead)


def addresses(report: Report) -> Outcome:
    """K5: outside links are references; an article without a public address is said to have none."""
    tested = passes(test_truth.test_outside_links_are_references, report.path)
    found = of_articles(references())
    lacking = sorted(name for name, each in found.items() if not each.url)
    unsaid = [name for name in lacking if "No public address known" not in (found[name].note or "")]
    of = f"{len(found) - len(lacking)} of {len(found)} articles; no public address known of {', '.join(lacking)}"
    return Outcome(of if tested.held else tested.value, tested.held and not lacking and not unsaid)


def weight(report: Report) -> Outcome:
    """B1: the page with its style sheet and script."""
    parts = [report.index, report.path / "assets/paper.css", report.path / "assets/paper.js"]
    total = sum(part.stat().st_size for part in parts)
    packed = sum(len(gzip.compress(part.read_bytes())) for part in parts)
    return Outcome(f"{total / 1e6:.2f} MB; {packed / 1e3:.0f} KB", total <= 1_500_000 and packed <= 350_000)


def elements(report: Report) -> Outcome:
    """B2: every page, without its scripts, which add none before they are asked."""
    page, most, worst, of_index = report.page, 0, Path(), 0
    with scripts_off(page):
        for path in report.pages:
            page.get(path.as_uri())
            count = page.execute_script("return document.querySelectorAll('*').length")
            of_index = count if path == report.index else of_index
            most, worst = max((most, worst), (count, path))
    value = f"{of_index:,}; {most:,} ({worst.relative_to(report.path)})"
    return Outcome(value, of_index <= 10_000 and most <= 25_000)


_LOADED = """
const done = arguments[0], long = [];
new PerformanceObserver((list) => long.push(...list.getEntries())).observe({type: "longtask", buffered: true});
const wait = () => {
  const entry = performance.getEntriesByType("navigation")[0];
  if (!entry.loadEventEnd) return setTimeout(wait, 20);
  setTimeout(() => {
    const blocked = long.reduce((sum, each) => sum + Math.max(0, each.duration - 50), 0);
    done([entry.loadEventEnd / 1000, blocked]);
  }, 1000);
};
wait();
"""


def loading(report: Report) -> Outcome:
    """B3: the least of five loads on the slow phone, for others may keep the machine busy; and the process's memory."""
    page = report.page
    with slow_phone(page):
        runs = []
        for _ in range(5):
            opened(page, report.index)
            runs.append(page.execute_async_script(_LOADED))
    page.execute_cdp_cmd("Performance.enable", {})
    metrics = {each["name"]: each["value"] for each in page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    page.execute_cdp_cmd("Performance.disable", {})
    load, blocked = (min(column) for column in zip(*runs, strict=True))
    heap, resident = metrics["JSHeapUsedSize"] / 1e6, _resident(page.service.process.pid) / 1e6
    value = f"{load:.2f} s; {blocked:.0f} ms; {heap:.0f} + {resident:.0f} MB"
    return Outcome(value, load <= 3 and blocked <= 300 and heap + resident <= 200)


def _resident(above: int) -> int:
    """Bytes of memory that the largest renderer among the descendants of a process has for itself."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    largest = 0
    for pid in parents:
        up = pid
        while up not in (above, 0):
            up = parents.get(up, 0)
        with contextlib.suppress(OSError):
            if up == above and b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                told = Path(f"/proc/{pid}/smaps_rollup").read_text()
                own = sum(int(kb) for kb in re.findall(r"^Private_(?:Clean|Dirty): +(\d+)", told, re.M))
                largest = max(largest, 1024 * own)
    return largest


def typing(report: Report) -> Outcome:
    """B4: the longest event of typing into the search of the claims on the slow phone, the least of three times."""
    page, worst = report.page, []
    with slow_phone(page):
        for _ in range(3):
            opened(page, report.path / "claims.html")
            page.execute_script(
                "window.events = []; new PerformanceObserver((list) => events.push(...list.getEntries()))"
                ".observe({type: 'event', durationThreshold: 16})"
            )
            field = page.execute_script("return document.forms['claim-filters'].elements.words")
            for key in "cublas":
                field.send_keys(key)
                page.execute_async_script("setTimeout(arguments[0], 300)")
            worst.append(page.execute_script("return Math.max(0, ...events.map((each) => each.duration))"))
    return Outcome(f"{min(worst):.0f} ms", min(worst) <= 200)


_FIGURES = """
const all = [...document.querySelectorAll("figure svg")].filter((each) => each.viewBox.baseVal?.width);
return all.map((svg) => {
  const texts = svg.checkVisibility() ? [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim()) : [];
  const scale = svg.getScreenCTM()?.a ?? 1, box = svg.closest("figure");
  const inner = [...box.querySelectorAll(":scope > div")].some((each) => each.scrollWidth > each.clientWidth + 1);
  return {bytes: new Blob([svg.outerHTML]).size, elements: svg.querySelectorAll("*").length,
          title: svg.querySelector("title")?.textContent ?? "", desc: svg.querySelector("desc")?.textContent ?? "",
          smallest: Math.min(...texts.map((t) => scale * parseFloat(getComputedStyle(t).fontSize))),
          scrolls: svg.checkVisibility() && inner};
});
"""


def _figures(report: Report, width: int) -> list[dict[str, Any]]:
    """Each drawing of each page with figures, shown or not."""
    size(report.page, width)
    found = []
    for path in test_figures_in_chromium.drawn(report.path):
        opened(report.page, path)
        found += report.page.execute_script(_FIGURES)
    size(report.page, DESKTOP)
    return found


def small_figures(report: Report) -> Outcome:
    """B5: as they are in the pages, and as files."""
    drawn = _figures(report, DESKTOP)
    most = max(each["bytes"] for each in drawn), max(each["elements"] for each in drawn)
    file = max(path.stat().st_size for path in (report.path / "data/figures").rglob("*.svg"))
    value = f"{max(most[0], file) / 1e3:.1f} KB; {most[1]:,} elements ({len(drawn)} drawings)"
    return Outcome(value, max(most[0], file) <= 40_000 and most[1] <= 1_200)


def legible_figures(report: Report) -> Outcome:
    """F3."""
    shown = [each for each in _figures(report, PHONE) if each["smallest"] is not None]
    smallest, scrolling = min(each["smallest"] for each in shown), sum(each["scrolls"] for each in shown)
    return Outcome(f"{smallest:.1f} px; {scrolling} scroll", smallest >= 10 and not scrolling)


def described_figures(report: Report) -> Outcome:
    """F7."""
    drawn = _figures(report, DESKTOP)
    lengths = [len(each["desc"]) for each in drawn]
    same = sum(each["desc"] == each["title"] for each in drawn)
    value = f"{min(lengths)} to {max(lengths)}; {same} repeat the title"
    return Outcome(value, min(lengths) >= 40 and max(lengths) <= 300 and not same)


def clear_texts(report: Report) -> Outcome:
    """F1, in both widths."""
    faults = []
    for width in (DESKTOP, PHONE):
        size(report.page, width)
        for path in test_figures_in_chromium.drawn(report.path):
            opened(report.page, path)
            faults += report.page.execute_script(figure_faults.FAULTS)
    size(report.page, DESKTOP)
    return Outcome(str(len(faults)), not faults)


def colours(report: Report) -> Outcome:
    """F2: the palette, light and dark, to every eye; each series has a marker and a dash of its own besides."""
    least = 100.0
    for names in (style.SERIES, tuple(style.COLOURS[each].dark for each in style.SERIES)):
        for vision in colour_difference.VISION:
            seen = [colour_difference.lab(each, vision) for each in names]
            least = min(least, *(colour_difference.ciede2000(a, b) for a, b in combinations(seen, 2)))
    own = len(set(style.SERIES)) == len(set(style.MARKERS)) == 8
    return Outcome(f"ΔE {least:.1f} at least; 8 markers", least >= 12 and own)


def flips(report: Report) -> Outcome:
    """F4: of the figures that draw a baseline's throughput, from their CSV."""
    rows = [
        row
        for path in sorted((report.path / "data/figures").rglob("*.csv"))
        for row in csv.DictReader(path.open())
        if {"TFLOP/s", "cuBLAS in turn, TFLOP/s", "ratio to cuBLAS"} <= row.keys() and row["ratio to cuBLAS"]
    ]
    wrong = sum(
        (float(row["TFLOP/s"]) > float(row["cuBLAS in turn, TFLOP/s"])) != (float(row["ratio to cuBLAS"]) > 1)
        for row in rows
    )
    return Outcome(f"{wrong} of {len(rows)} rows", not wrong and bool(rows))


def published(report: Report) -> Outcome:
    """F6, by the report's verdicts and the recorded rows."""
    with tempfile.TemporaryDirectory() as folder:
        for name in registry.family_names():
            if (recorded := RECORDED / name / "experiments").is_dir():
                (Path(folder) / name).symlink_to(recorded)
        names = list(registry.family_names())
        inputs = stage.read(report.path / "data/verdicts.json", RECORDED, Path(folder), None, names)
        drawn, wanted = test_published_shown.drawn_and_wanted(inputs)
    share = len(wanted & drawn) / len(wanted)
    return Outcome(f"{share:.1%}: {len(wanted & drawn)} of {len(wanted)}", share >= test_published_shown.DRAWN)


def violations(report: Report) -> Outcome:
    """A1: five kinds of page, light, dark and on a phone."""
    if report.axe is None:
        return Outcome("not measured: no axe-core", False)
    found = []
    for scheme, width in (("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)):
        size(report.page, width)
        theme(report.page, scheme)
        for path in kinds(report.path).values():
            opened(report.page, path)
            found += test_accessibility.violations(report.page, report.axe)
    size(report.page, DESKTOP)
    theme(report.page, "light")
    return Outcome(f"{len(found)} on {len(KINDS)} kinds of page", not found)


_STOPS = """
const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((each) => each.checkVisibility());
const before = (place) => all.filter((each) => place && place.compareDocumentPosition(each) & 2).length;
const marks = document.querySelectorAll("header, nav, main, footer, [role=region], [role=search]," +
  " section[aria-labelledby], section[aria-label], aside, form[aria-label]").length;
return [marks, before(document.querySelector(arguments[0])), all[0].className];
"""


def stops(report: Report) -> Outcome:
    """A2."""
    page = opened(report.page, report.index)
    marks, figure, first = page.execute_script(_STOPS, ".finding")
    page = opened(page, report.path / "claims.html")
    _, filters, second = page.execute_script(_STOPS, "#claim-filters")
    value = f"{marks} landmarks; {figure} and {filters} stops; first: {first}, {second}"
    return Outcome(value, marks <= 25 and max(figure, filters) <= 40 and first == second == "skip")


_NAMES = """
const bare = /^[\\d.,\\s%\u00d7e+-]*$/;
const wrong = [];
for (const table of document.querySelectorAll("table")) {
  const seen = new Map();
  for (const link of table.querySelectorAll(':is(td, th) a[href*="#row-"]')) {
    const name = (link.getAttribute("aria-label") ?? link.textContent).trim();
    if (bare.test(name)) wrong.push(`bare: ${name}`);
    if ((seen.get(name) ?? link.href) !== link.href) wrong.push(`twice: ${name}`);
    seen.set(name, link.href);
  }
}
return wrong;
"""


def names(report: Report) -> Outcome:
    """A3, of every page with measured numbers."""
    found = []
    for path in test_truth.pages(report.path):
        opened(report.page, path)
        found += [f"{path.relative_to(report.path)}: {each}" for each in report.page.execute_script(_NAMES)]
    return Outcome(f"{len(found)}" + (f", such as {found[0]}" if found else ""), not found)


def headings(report: Report) -> Outcome:
    """A4, of every page."""
    twice = []
    for path in report.pages:
        found = [re.sub(r"<[^<>]+>|\s+", " ", each) for each in re.findall(r"<h[1-6][^>]*>(.*?)</h", path.read_text())]
        twice += [f"{path.relative_to(report.path)}: {each}" for each in set(found) if found.count(each) > 1]
    return Outcome(f"{len(twice)} repeated" + (f", such as {sorted(twice)[0]}" if twice else ""), not twice)


_CONTENT = "return ['p', 'table', 'tr', 'figure', 'a[href]'].map((each) => document.querySelectorAll(each).length)"


def without_script(report: Report) -> Outcome:
    """I3: as much is in each kind of page without script as with it."""
    page, differing = report.page, []
    for kind, path in kinds(report.path).items():
        scripted = opened(page, path).execute_script(_CONTENT)
        with scripts_off(page):
            if opened(page, path).execute_script(_CONTENT) != scripted:
                differing.append(kind)
    return Outcome("the same" if not differing else f"other in {', '.join(differing)}", not differing)


def printed(report: Report) -> Outcome:
    """P1: the paper as Chromium prints it; a page with fewer than 80 characters must hold a drawing."""
    page = opened(report.page, report.index)
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    theme(page, "light", "print")
    split = page.execute_script(
        "return [...document.querySelectorAll('figure')].filter((each) => each.checkVisibility() &&"
        " getComputedStyle(each).breakInside !== 'avoid').length"
    )
    theme(page, "light")
    texts = _texts_of(pdf)
    said = f"{printed_pages(pdf)} pages; {split} figures may split"
    if texts is None:
        return Outcome(f"{said}; bare pages not measured: no pypdf", False)
    bare, packed = sum(len(text.strip()) < 80 for text in texts), sum("Packed" in text for text in texts)
    return Outcome(f"{said}; {bare} bare; {packed} packed", len(texts) <= 30 and not (bare or split or packed))


def _texts_of(pdf: bytes) -> list[str] | None:
    """The text of each page, if pypdf is installed."""
    if importlib.util.find_spec("pypdf") is None:
        return None
    from pypdf import PdfReader

    return [each.extract_text() for each in PdfReader(io.BytesIO(pdf)).pages]


def vain(report: Report) -> Outcome:
    """T2."""
    found = [each for path in report.pages for each in prose.said_in_vain(path)]
    return Outcome(str(len(found)), not found)


def english(report: Report) -> Outcome:
    """T3."""
    texts = prose.paragraphs(report.index)
    counts = [prose.words(each) for text in texts for each in prose.sentences(text)]
    shown = opened(report.page, report.index).execute_script("return document.body.innerText.split(/\\s+/).length")
    mean, long, rate = sum(counts) / len(counts), sum(count > 40 for count in counts), prose.per_hundred_words(texts)
    held = shown <= 9_000 and mean <= 22 and not long and rate <= 8
    return Outcome(f"{shown:,} words; {mean:.1f}; {long}; {rate:.1f}", held)


def beside(report: Report) -> Outcome:
    """D1."""
    shown = {
        (match[1], Path(match[2]).stem)
        for path in report.pages
        for match in re.finditer(r'href="(?:\.\./)?data/figures/(\w+)/([\w.]+)\.svg"', path.read_text())
    }
    folder = report.path / "data/figures"
    lacking = [
        name for name in shown if not all((folder / name[0] / f"{name[1]}.{e}").is_file() for e in ("svg", "csv"))
    ]
    claims = report.path / "claims.html"
    rows = opened(report.page, claims).execute_script(
        "return document.querySelectorAll('#claims-table tbody tr').length"
    )
    with (report.path / "data/claims.csv").open() as file:
        listed = sum(1 for _ in csv.DictReader(file))
    return Outcome(
        f"{len(shown)} figures, {len(lacking)} lacking; {listed} of {rows} claims", not lacking and listed == rows
    )
