"""Budgets of size: what is above its aim may not grow, and what shrinks takes its limit along."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from gemmrepro.core.paths import ROOT


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def words(pattern: str) -> int:
    return sum(len(path.read_text().split()) for path in ROOT.glob(pattern))


LIBRARY = list(ROOT.glob("workflow/gemmrepro/**/*.py"))
# With tables and scripts beside them: what leaves Python for YAML is as long to read.
TESTS = [path for suffix in ("py", "yaml", "js") for path in ROOT.glob(f"tests/**/*.{suffix}")]


@pytest.mark.parametrize(
    ("what", "size", "limit", "aim"),
    [
        ("lines of the library", lines(LIBRARY), 32_000, 32_000),
        ("files of the library", len(LIBRARY), 170, 170),
        ("lines of tests", lines(TESTS), 23_550, 22_000),
        ("words of docs", words("docs/*.md"), 10_000, 10_000),
        ("words of notes", words("kernels/*/NOTES.md"), 25_000, 25_000),
        ("lines of README", lines([ROOT / "README.md"]), 100, 100),
        ("words of CHANGELOG", words("CHANGELOG.md"), 400, 400),
    ],
)
def test_nothing_grows_past_its_limit(what: str, size: int, limit: int, aim: int) -> None:
    assert aim <= limit, "a limit below the aim asks for more than was decided"
    assert size <= limit, f"{what}: {size}, at most {limit}; take something out"
