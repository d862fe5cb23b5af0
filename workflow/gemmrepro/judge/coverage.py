"""Whether every number that a source prints is a row of published.csv, or an exception with its reason.

    python -m gemmrepro.judge.coverage [FILE ...] [--write]

reads the sources (default: every text file in the folder that the environment variable GEMMREPRO_SOURCES names) and
lists the numbers that neither a row nor an exception covers; its exit status says whether there are any. The sources
are not part of the repository. What they print is kept as a digest, source_numbers.csv, which --write renews: each
number with its line and section, no word of the text. The tests judge the digest, and compare it with the sources
where these are at hand.

A number is covered by a row of its article whose `place` names the number's section and whose value, n or d equals the
number in one of its readings (see `readings`).
"""

from __future__ import annotations

import argparse
import csv
import html
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.judge.published import published_rows

FOLDER = "GEMMREPRO_SOURCES"
DATA = ROOT / "tests" / "unit" / "data"
DIGEST, SECTIONS, EXCEPTIONS = (DATA / f"source_{name}.csv" for name in ("numbers", "sections", "exceptions"))

_TAG = r"</?[A-Za-z!][^<>]*>"
NO_NUMBERS = {
    r"https?://[^\s)\]\"']+": "an address",
    r"0x[0-9A-Fa-f]+": "an address in memory, of a drawing",
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2}(?: \d\d:\d\d:\d\d,\d+)?": "a date",
    r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d{4} [\d:]+ \+\d+": "a date",
    r"\d{4}年": "a year",
    r"(?<![\w.])\d+\.\d+\.\d+(?:\.\d+)?(?:\+\w*)?": "a version",
    r"(?:CUDA|CUDA ?Toolkit|PyTorch|Python|numba|transformers)\W{0,3}\d+(?:\.\d+)?": "a version",
    r"RTX \d+|PLaMo 2|Hopper \(H100\)": "a name that holds a number",
    r"(?:Level|Step|Phase|Stage|Algorithm|Thread|Warp|Lecture)\W{0,2}\d+": "which one of a series, not how many",
    r"(?:그림|図|式|강의)\W?\d+": "which one of a series, not how many",
    r"\bBlock \(\d+,\d+\)": "which one of a series, not how many",
    r"\d+(?=(?:つ目|回目|부|番目|ページ目|번째|年|월))": "which one of a series, not how many",
    r"\[\d+\]": "a reference, or an index of an array",
    r"\\tag\{\d+\}": "the number of an equation",
    r"\d+(?=(?:D|次元|차원)(?![A-Za-z]))": "dimensions of a space",
    r"(?<![0-9A-Za-z_.])[A-Za-z_][A-Za-z0-9_]*": "a name: identifiers, GPUs, types, levels of a cache",
    r"^\s*(?:>\s*)?\d+\. ": "the number of a list's item",
}
"""What holds digits without being a number: pattern, and what it is."""

_KEPT = re.compile(r"1/\d+|K/\d+(?!\w)")
_NUMBER = re.compile(
    r"(?<![A-Za-z_.0-9])(?:1/\d+|K/\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?:\s?[%万割]|[KMG]i?B?(?![A-Za-z])|B(?![A-Za-z]))?"
)
_SUFFIXES = "%万割KMGiB "
_SCALES = {"割": (0.1,), "K": (1e3, 2**10), "M": (1e6, 2**20), "G": (1e9, 2**30), "B": (1e9,), "万": (1e4,)}


@dataclass(frozen=True)
class Number:
    """A number as a source prints it: `source` is the file's number, `section` the part of the article it stands in."""

    source: str
    line: int
    article: str
    section: str
    text: str


@dataclass(frozen=True)
class Section:
    """Where a part of an article begins: at `line`, or at the first match of `marker` on it or behind."""

    source: str
    line: int
    marker: str
    article: str
    section: str


@dataclass(frozen=True)
class Exempt:
    """Numbers that need no row: those that match `numbers` on `first` to `last` of a source, in `section` if given."""

    source: str
    section: str
    first: int
    last: int
    numbers: str
    reason: str

    def covers(self, number: Number) -> bool:
        """Whether `number` is one of them."""
        return (
            number.source == self.source
            and self.first <= number.line <= self.last
            and self.section in ("", number.section)
            and re.fullmatch(self.numbers or ".*", number.text) is not None
        )


def readings(text: str) -> set[float]:
    """What a printed number may mean: ``93.7%`` 0.937 or a gain of 1.937, ``256M`` 2^28 too, ``K/64`` a 64th."""
    body = text.rstrip(_SUFFIXES).replace(",", "")
    if "/" in body:
        over = float(body.partition("/")[2])
        return {over, 1 / over}
    value = float(body)
    suffix = text[len(text.rstrip(_SUFFIXES)) :].strip()[:1]
    if suffix == "%":
        return {value, value / 100, 1 + value / 100}
    return {value, *(value * scale for scale in _SCALES.get(suffix, ()))}


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def covering(number: Number, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first row that holds a number of its article and section."""
    wanted = readings(number.text)
    for row in rows:
        if row["article"] != number.article or number.section not in places(row):
            continue
        held = [float(row[key]) for key in ("value", "n", "d") if row[key] is not None]
        if any(_same(value, reading) for value in held for reading in wanted):
            return row
    return None


def places(row: Mapping[str, Any]) -> list[str]:
    """The sections that a row's place names: of ``Roadmap: table; Level 1: result`` Roadmap and Level 1."""
    return [place.partition(":")[0].strip() for place in row["place"].split(";")]


def uncovered(
    numbers: Iterable[Number], rows: Sequence[Mapping[str, Any]], exceptions: Sequence[Exempt]
) -> list[Number]:
    """The numbers that no row and no exception covers."""
    return [
        number
        for number in numbers
        if covering(number, rows) is None and not any(exempt.covers(number) for exempt in exceptions)
    ]


def unprinted(rows: Iterable[Mapping[str, Any]], numbers: Iterable[Number]) -> list[Mapping[str, Any]]:
    """The rows whose value no section that their place names prints: linked pages, words, or a slip of the pen."""
    printed: dict[tuple[str, str], set[float]] = {}
    for number in numbers:
        printed.setdefault((number.article, number.section), set()).update(readings(number.text))
    return [
        row
        for row in rows
        if not all(
            any(_same(row["value"], reading) for reading in printed.get((row["article"], place), ()))
            for place in places(row)
        )
    ]


def numbers_of(path: Path, sections: Sequence[Section]) -> list[Number]:
    """Every number of a source in its order.

    Raises:
        UserError: a section's marker is not found.
    """
    source = path.name.partition("_")[0]
    found: list[Number] = []
    own = [section for section in sections if section.source == source]
    lines = path.read_text().splitlines()
    for section, line, text in _pieces(lines, own):
        for printed in _printed(text):
            found.append(Number(source, line, section.article, section.section, printed))
    return found


def _pieces(lines: Sequence[str], sections: Sequence[Section]) -> Iterator[tuple[Section, int, str]]:
    """Every line with its section; a line in which sections begin in pieces."""
    starts = _starts(lines, sections)
    for place, (section, line, column) in enumerate(starts):
        last, until = starts[place + 1][1:] if place + 1 < len(starts) else (len(lines), len(lines[-1]))
        for number in range(line, last + 1):
            text = lines[number - 1]
            piece = text[column if number == line else 0 : until if number == last else len(text)]
            yield section, number, piece


def _starts(lines: Sequence[str], sections: Sequence[Section]) -> list[tuple[Section, int, int]]:
    """Line (from 1) and column (from 0) where each section begins. Raises UserError."""
    starts: list[tuple[Section, int, int]] = []
    for section in sections:
        before = starts[-1] if starts and starts[-1][1] == section.line else None
        column = before[2] + 1 if before else 0
        if section.marker:
            column = lines[section.line - 1].find(section.marker, column)
        if column < 0:
            raise UserError(
                f"source {section.source}, line {section.line}: no '{section.marker}' for {section.section}."
            )
        starts.append((section, section.line, column))
    return starts


def _printed(text: str) -> list[str]:
    """The numbers of a line as printed."""
    text = unicodedata.normalize("NFKC", html.unescape(re.sub(_TAG, " ", text)))
    kept = [match.span() for match in _KEPT.finditer(text)]
    for pattern in NO_NUMBERS:
        text = re.sub(pattern, lambda match: _blank(match, kept), text)
    text = re.sub(r"(?<=\d)x(?=\d)|[\u00d7\u2217]", " ", text)
    return [re.sub(r"\s", "", match.group()) for match in _NUMBER.finditer(text)]


def _blank(match: re.Match[str], kept: Sequence[tuple[int, int]]) -> str:
    inside = any(start <= match.start() < end for start, end in kept)
    return match.group() if inside else " " * len(match.group())


def read_sections(path: Path = SECTIONS) -> list[Section]:
    """The sections in their order."""
    return [Section(**{**row, "line": int(row["line"])}) for row in _read(path)]


def read_exceptions(path: Path = EXCEPTIONS) -> list[Exempt]:
    """The exceptions, each with its reason."""
    return [Exempt(**{**row, "first": int(row["first"]), "last": int(row["last"])}) for row in _read(path)]


def read_digest(path: Path = DIGEST) -> Counter[Number]:
    """The numbers of the digest with their counts."""
    counts: Counter[Number] = Counter()
    for row in _read(path):
        count = int(row.pop("count"))
        counts[Number(**{**row, "line": int(row["line"])})] += count
    return counts


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_digest(numbers: Iterable[Number], path: Path = DIGEST) -> None:
    """Each number once, with its count, in the order of the sources."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(field.name for field in fields(Number)), "count"])
        writer.writerows([*astuple(number), count] for number, count in Counter(numbers).items())


def sources() -> list[Path]:
    """The text files in the folder of GEMMREPRO_SOURCES; none where it is not set."""
    folder = os.environ.get(FOLDER)
    return sorted(Path(folder).glob("*.txt")) if folder else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists what no row covers. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.judge.coverage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help=f"renew {DIGEST.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    files = options.files or sources()
    if not files:
        raise UserError(f"Name the sources, or set {FOLDER} to their folder.")
    sections = read_sections()
    numbers = [number for path in files for number in numbers_of(path, sections)]
    if options.write:
        write_digest(numbers)
    rows, exceptions = published_rows(), read_exceptions()
    left = uncovered(numbers, rows, exceptions)
    for number, count in Counter(left).items():
        times = f" ({count} times)" if count > 1 else ""
        print(f"{number.source}:{number.line}: {number.article or '-'}, {number.section}: {number.text}{times}")
    held = sum(covering(number, rows) is not None for number in numbers)
    print(
        f"{len(numbers)} numbers: {held} in rows, {len(numbers) - held - len(left)} exceptions, {len(left)} uncovered"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
