"""The measured numbers of a report's pages, and how a reader comes from one to its evidence."""

from __future__ import annotations

import re
from pathlib import Path

NUMBERS = """
const digits = /\\d/;
const cells = [...document.querySelectorAll('main td.n, header td.n')].filter(
  (each) => digits.test(each.textContent) && !each.closest('[data-published], [data-counts], .diff') &&
    !each.querySelector('[data-published], [data-recorded], a[href*="claims.html#verdict="]'));
const links = [...document.querySelectorAll('main a[href*="#row-"], header a[href*="#row-"]')].filter(
  (each) => digits.test(each.textContent) && !each.closest('td.n'));
return [...cells, ...links];
"""
"""Script: the cells of numeric columns, and the linked numbers of the text.

What an article prints, or another recording holds, is no measurement of the report; neither are counts of verdicts, and
drawings of how a kernel works.
"""

FIND = "const found = (() => {" + NUMBERS + "})();"

COUNT = FIND + "return found.length;"

CLICK = (
    FIND
    + """
const [cell, done] = [found[arguments[0]], arguments[1]];
for (let each = cell.closest('details'); each; each = each.parentElement.closest('details')) each.open = true;
const row = cell.closest('tr'); if (row) row.hidden = false;
const link = cell.matches('a') ? cell : cell.querySelector('a[href]');
const before = location.href;
const said = () => {
  const box = document.querySelector('dialog[open]');
  if (box) return {
    text: cell.textContent.trim(), words: box.innerText,
    links: [...box.querySelectorAll('.places a, .operands a')].map((a) => [a.textContent, a.href]),
    command: box.querySelector('pre')?.textContent || ''};
  return null;
};
// A link that the page does not answer itself leads to another page, where this script would end.
let place = '';
addEventListener('click', (event) => {
  if (link && !event.defaultPrevented && link.pathname !== location.pathname) {
    event.preventDefault();
    place = link.href;
  }
}, {once: true});
(link || cell).click();
if (place) return done({text: cell.textContent.trim(), place, links: [], command: ''});
let tries = 0;
const wait = () => {
  const found = said();
  if (found) return done(found);
  if (++tries < 400 && (!link || location.href === before)) return setTimeout(wait, 25);
  done({text: cell.textContent.trim(), place: link ? link.href : location.href, links: [], command: ''});
};
wait();
"""
)
"""Script: what a click on a number shows, or where it leads."""

COMMAND = re.compile(r"snakemake .*--(force|config)\b.*results/")

KINDS = ("samples", "source", "machine code", "command")


def evidence(said: dict, report: Path) -> set[str]:
    """Which of KINDS one more click at most reaches, from what a click on a number shows."""
    if "place" in said:  # a kernel's page has them below the number itself
        text = _text(said["place"], report)
        marks = {
            "samples": 'id="samples-',
            "source": 'id="source-',
            "machine code": 'id="code-',
            "command": "snakemake",
        }
        return {kind for kind, mark in marks.items() if mark in text}
    found = {"command"} if COMMAND.search(said["command"]) else set()
    for name, link in said["links"]:
        fragment = link.partition("#")[2]
        if not _text(link, report) or (fragment and ".html" in link and f'id="{fragment}"' not in _text(link, report)):
            return set()
        if re.match("Samples|Row|Numbers|All rows", name) or "#row-" in link:
            found.add("samples")
        if re.match("Source|Program", name):
            found.add("source")
        if name.startswith("Machine code"):
            found.add("machine code")
        # A kernel's page has all of them; a library's source and machine code are not ours to show.
        if "launched" in name or ("/kernels/" in link and "#row-" in link):
            found |= {"source", "machine code"}
    return found | ({"machine code"} if "of a library" in said["words"] else set())


def _text(link: str, report: Path) -> str:
    """What a file of the report holds; nothing where the link leads elsewhere."""
    path = Path(re.sub("^file://|#.*", "", link))
    held = path.is_file() and path.is_relative_to(report)
    return path.read_text(errors="replace") if held else ""
