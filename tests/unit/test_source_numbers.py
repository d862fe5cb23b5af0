"""Every number that a source prints is a row of published.csv, or an exception with its reason.

The sources are not in the repository. Their digest is (source_numbers.csv: numbers, lines and sections); it is compared
with them where GEMMREPRO_SOURCES names their folder.
"""

from __future__ import annotations

from collections import Counter

import pytest

from gemmrepro.judge import coverage
from gemmrepro.judge.coverage import Exempt, Number, Section
from gemmrepro.judge.published import published_rows

LINKED = ("Author's repository", "Linked notebook", "Linked repository", "Part 1", "Figure 5", "Figure 6")
"""Pages and files that an article links, and charts whose numbers a linked file holds."""
WITHOUT_FIGURE = ("negative_result", "numerics", "trend")
"""Metrics of statements in words."""

NOT_PRINTED = {
    ("ada", "final kernel", "ratio_to_cublas"): "in words: practically equal",
    ("ada", "warp schedulers of an SM", "parameter"): "in words: four",
    ("ada", "fp16 of a load", "parameter"): "in words: eight",
    ("cutile", "CUDA toolkit needed", "parameter"): "a version",
    ("ladder", "vector add: elements", "parameter"): "printed as 1 << 20",
    ("ladder", "L3 smem, as counted in level 5", "global_loads"): "K/BLOCKSIZE at the printed BLOCKSIZE of 32",
    ("ozaki", "fast mode", "gemms"): "the quotient of the printed 39 and 49",
}


def test_every_number_of_the_sources_is_a_row_or_an_exception():
    assert coverage.uncovered(coverage.read_digest(), published_rows(), coverage.read_exceptions()) == []


def test_every_exception_has_a_reason_and_is_needed():
    rows = published_rows()
    left = [number for number in coverage.read_digest() if coverage.covering(number, rows) is None]
    for exempt in coverage.read_exceptions():
        assert exempt.reason
        assert any(exempt.covers(number) for number in left), exempt


def test_every_row_is_printed_where_its_place_says():
    """The way back: a row that no section prints is of a linked page, or one of those above."""
    rows = [row for row in published_rows() if row["metric"] not in WITHOUT_FIGURE]
    missing = coverage.unprinted(rows, coverage.read_digest())
    here = {(row["article"], row["system"], row["metric"]) for row in missing if not row["place"].startswith(LINKED)}
    assert here == set(NOT_PRINTED)


def test_every_place_is_a_section_of_its_article_or_a_linked_page():
    known = {(section.article, section.section) for section in coverage.read_sections()}
    for row in published_rows():
        for place in coverage.places(row):
            assert place in LINKED or (row["article"], place) in known, row


@pytest.mark.skipif(not coverage.sources(), reason=f"{coverage.FOLDER} names no folder with the sources")
def test_the_digest_is_that_of_the_sources():
    sections = coverage.read_sections()
    read = Counter(number for path in coverage.sources() for number in coverage.numbers_of(path, sections))
    assert read == coverage.read_digest()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,987", 1987),
        ("93.7%", 0.937),
        ("43%", 1.43),
        ("7割", 0.7),
        ("100万", 1e6),
        ("256M", 2**28),
        ("1K", 1024),
        ("48KB", 48),
        ("1/32", 0.03125),
        ("K/64", 1 / 64),
        ("1.58e-15", 1.58e-15),
    ],
)
def test_readings(text, value):
    assert any(reading == pytest.approx(value, rel=1e-12) for reading in coverage.readings(text))


@pytest.fixture
def article(tmp_path):
    path = tmp_path / "009_x.txt"
    path.write_text(
        "2026-02-08, RTX 4090, CUDA 13.1, https://a.b/7\n"
        "Level 1: 309 GFLOPs/s (cuBLAS の 1.3%), K/64, Swizzle<3,3,3>, m16n8k16 as 16x8x16\n"
        "First part 1,987 Second part ~12 TB/s and 2^{53}\n"
    )
    sections = [
        Section("009", 1, "", "a", "Head"),
        Section("009", 2, "", "a", "Level"),
        Section("009", 3, "First", "a", "First"),
        Section("009", 3, "Second", "a", "Second"),
    ]
    return path, sections


def test_names_dates_versions_and_addresses_are_no_numbers(article):
    found = [(number.section, number.text) for number in coverage.numbers_of(*article)]
    level = ["309", "1.3%", "K/64", "3", "3", "3", "16", "8", "16"]
    assert found == [
        *(("Level", text) for text in level),
        ("First", "1,987"),
        *(("Second", text) for text in ("12", "2", "53")),
    ]


def test_a_row_covers_only_its_own_section_and_a_marker_must_be_there(article):
    path, sections = article
    row = {"article": "a", "place": "Level: heading; First: table", "value": 309.0, "n": None, "d": None}
    printed = Number("009", 2, "a", "Level", "309")
    assert coverage.covering(printed, [row]) is row
    assert coverage.covering(Number("009", 3, "a", "Second", "309"), [row]) is None
    assert coverage.uncovered([printed], [], [Exempt("009", "", 1, 2, "3.*", "planted")]) == []
    assert coverage.uncovered([printed], [], [Exempt("009", "", 3, 3, "", "planted")]) == [printed]
    with pytest.raises(coverage.UserError, match="no 'Third'"):
        coverage.numbers_of(path, [*sections, Section("009", 3, "Third", "a", "Third")])


def test_the_program_lists_what_no_row_covers(article, capsys, monkeypatch):
    path, sections = article
    monkeypatch.setattr(coverage, "read_sections", lambda: sections)
    assert coverage.main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "009:2: a, Level: 309" in out and "13 numbers: 0 in rows" in out
    monkeypatch.delenv(coverage.FOLDER, raising=False)
    with pytest.raises(coverage.UserError, match="Name the sources"):
        coverage.main([])


def test_sections_of_a_line_begin_one_behind_the_other(tmp_path):
    path = tmp_path / "009_x.txt"
    path.write_text("aa 5\naa 6\n")
    sections = [Section("009", line, "a", "x", f"{line}{part}") for line in (1, 2) for part in "fg"]
    found = [(number.section, number.line, number.text) for number in coverage.numbers_of(path, sections)]
    assert found == [("1g", 1, "5"), ("2g", 2, "6")]
    with pytest.raises(coverage.UserError, match="line 1: no 'a' for third"):
        coverage.numbers_of(path, [*sections[:2], Section("009", 1, "a", "x", "third")])
