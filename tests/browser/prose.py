"""The prose of a page, and what can be counted in it."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?(?![\w])")
_PROSE = re.compile(r"<(p|li|dd)\b[^<>]*>(.*?)</\1>", re.S)
_APART = re.compile(r"<(style|script|svg|table|pre|figure|nav|footer)\b.*?</\1>", re.S)

_NOTES = re.compile(r'<(p|ol|ul|details) class="(?:where|sources|muted|references|tally)".*?</\1>', re.S)


def _text(markup: str) -> str:
    apart = r'<span class="(?:ci|where|origin|flag|evidence)">.*?</span>|<code>.*?</code>'
    markup = re.sub(apart, " ", markup, flags=re.S)
    return " ".join(unescape(re.sub("<[^<>]+>", "", markup)).split())


def paragraphs(page: Path, section: str = "") -> list[str]:
    """Paragraphs, list items and definitions, without tables, figures, listings, intervals and notes of origin.

    What a rung was expected to do, and did, is data as well. `section` restricts them to the element with this id, up
    to the next section.
    """
    markup = page.read_text()
    if section:
        begin = markup.index(f'id="{section}"')
        markup = markup[begin : markup.index("</section>", begin)]
    markup = _NOTES.sub("", _APART.sub("", markup))
    return [text for _, inner in _PROSE.findall(markup) if (text := _text(inner))]


def sentences(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=[.?!:;])\s+(?=[A-Z0-9“])", text) if each]


def words(text: str) -> int:
    return len(text.split())


def per_hundred_words(texts: list[str]) -> float:
    """Numbers per 100 words; sizes and names such as L7, sm_90 and bf16 are words."""
    count = sum(words(text) for text in texts)
    return 100 * sum(len(NUMBER.findall(text)) for text in texts) / max(count, 1)
