"""The 31 acceptance checks of the report, measured in Chromium on a finished run's folder.

    PYTHONPATH=workflow envs/run python tests/campaigns/page_checks.py --report reports \\
        --out tests/campaigns/recorded/page-checks.json

Prints a table with the threshold of each check, what the first page that was reviewed had (one file of 650 screens, at
commit 30637f8), and what this report has. Needs Chromium and ChromeDriver; check A1 also axe-core (`--axe`, or what
`.ci/run` installs in .envs/validators), check P1 the Python package pypdf. `--only K1,B3` measures some. It takes about
10 minutes on one core; B3 and B4 are times on this machine, slowed down fourfold.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("workflow", "tests", "tests/unit", "tests/browser")]

import chromium  # noqa: E402
import page_measures as measures  # noqa: E402
import test_paper  # noqa: E402
import test_truth  # noqa: E402
from looks import DESKTOP, size, theme  # noqa: E402
from page_measures import Outcome, Report, passes  # noqa: E402


@dataclass(frozen=True)
class Check:
    """What is asked, the threshold, and what the first page had; "-" where nobody measured it."""

    name: str
    what: str
    threshold: str
    before: str
    measure: Callable[[Report], Outcome]


clicks = functools.cache(measures.clicks)
"""Both outcomes of the same clicks."""


def filters(report: Report) -> Outcome:
    """I1."""
    tests = (
        test_paper.test_filters_count_and_stay_in_the_address,
        test_paper.test_words_find_and_an_empty_choice_says_so,
        test_paper.test_a_link_to_a_filtered_claim_shows_it,
    )
    return next(
        (found for test in tests if not (found := passes(test, report.page, report.path)).held), Outcome("equal", True)
    )


CHECKS = (
    Check("K1", "60 numbers clicked, twice: their row is on screen", "all", "2 of 26; 0 of 26", lambda r: clicks(r)[0]),
    Check("K2", "60 addresses pasted, three times: the same", "all", "0 of 7", measures.pasted),
    Check("K3", "the number or its formula is in the evidence", "100 %", "70 %", lambda r: clicks(r)[1]),
    Check("K4", "links of the zip file, unpacked alone", "0 dead", "1,584 dead", measures.unpacked),
    Check("K5", "outside links are references; articles with an address", "7 of 7", "0 of 7", measures.addresses),
    Check("B1", "first view; packed with gzip", "1.5 MB; 350 KB", "8.65 MB; 2,540 KB", measures.weight),
    Check("B2", "elements of the paper; of any page", "10,000; 25,000", "134,444", measures.elements),
    Check(
        "B3",
        "CPU / 4: load; blocked; heap + process",
        "3 s; 300 ms; 200 MB",
        "11.6 to 19.6 s; 2.2 to 4.0 s; 412 MB",
        measures.loading,
    ),
    Check("B4", "CPU / 4: longest event of typing into the search", "200 ms", "304 ms", measures.typing),
    Check("B5", "the largest figure", "40 KB; 1,200", "344 KB", measures.small_figures),
    Check("F1", "texts outside, across each other, crossed by a line", "0", "several", measures.clear_texts),
    Check("F2", "colours: difference to every eye, own markers", "ΔE 12", "repeated", measures.colours),
    Check("F3", "390 px: smallest letters; figures that scroll", "10 px; 0", "all scroll", measures.legible_figures),
    Check("F4", "rows whose drawn baseline contradicts the ratio", "0", "103 of 1,722", measures.flips),
    Check(
        "F5",
        "intervals of under 6 samples, or above a ceiling",
        "0",
        "131",
        lambda r: passes(test_truth.test_no_interval_from_too_few_samples_or_above_a_ceiling, r.path, said="0"),
    ),
    Check("F6", "published values with a counterpart that are drawn", "95 %", "33 of 299", measures.published),
    Check("F7", "characters of a description", "40 to 300, not the title", "-", measures.described_figures),
    Check("A1", "axe, WCAG 2.2 AA and best practice: violations", "0", "few", measures.violations),
    Check("A2", "landmarks; stops before figure and filter; skip link", "25; 40; yes", "2,710 stops", measures.stops),
    Check("A3", "names of numbers without their subject, or twice", "0", "-", measures.names),
    Check("A4", "headings that repeat in a page", "0", "37 “Discussion”", measures.headings),
    Check("I1", "filters after reload, back, and by address", "equal", "lost", filters),
    Check(
        "I2",
        "evidence by keyboard, Escape, focus returns",
        "pass",
        "none",
        lambda r: passes(test_paper.test_evidence_by_keyboard, r.page, r.path),
    ),
    Check("I3", "texts, tables, figures, links without script", "the same", "packed", measures.without_script),
    Check("P1", "printed: pages; bare; split; packed", "30; 0; 0; 0", "398; 1; 1; 862", measures.printed),
    Check(
        "T1",
        "limits hold of the data",
        "all",
        "1 false",
        lambda r: passes(test_truth.test_limits_hold_of_the_data, r.path),
    ),
    Check("T2", "sentences that say nothing", "0", "several", measures.vain),
    Check(
        "T3",
        "words; mean sentence; over 40 words; numbers per 100",
        "9,000; 22; 0; 8",
        "183,537; 28; -; 13.6",
        measures.english,
    ),
    Check(
        "T4",
        "findings of the abstract, with numbers looked up",
        "3",
        "0",
        lambda r: passes(test_truth.test_the_abstract_names_findings, r.path),
    ),
    Check(
        "T5",
        "every printed command plans",
        "exit 0",
        "exit 0",
        lambda r: passes(test_truth.test_every_command_plans, r.path, said="exit 0"),
    ),
    Check("D1", "figures with SVG and CSV; claims in claims.csv", "all", "0", measures.beside),
)
"""In the order in which the review lists them."""


def measured(report: Report, only: set[str]) -> list[dict[str, str | bool]]:
    """The rows of the table, printed as they come."""
    rows: list[dict[str, str | bool]] = []
    for check in CHECKS:
        if only and check.name not in only:
            continue
        size(report.page, DESKTOP)
        theme(report.page, "light")
        outcome = check.measure(report)
        rows.append(
            {"check": check.name, "what": check.what, "threshold": check.threshold, "first page": check.before,
             "now": outcome.value, "held": outcome.held}
        )  # fmt: skip
        print(markdown(rows[-1:]), flush=True)
    return rows


def markdown(rows: list[dict[str, str | bool]]) -> str:
    cells = [[("yes" if cell else "no") if isinstance(cell, bool) else cell for cell in row.values()] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def axe_of(path: Path | None) -> str | None:
    """The text of axe-core, from `path` or from the validators."""
    found = [path] if path else sorted((ROOT / ".envs").glob("validators/lib/python*/site-packages/*/axe.min.js"))
    return found[0].read_text() if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True, help="the folder of a finished run's report")
    parser.add_argument("--axe", type=Path, help="axe.min.js")
    parser.add_argument("--only", type=lambda text: set(text.split(",")), default=set(), metavar="CHECKS")
    parser.add_argument("--out", type=Path, help="write the table as JSON, too")
    arguments = parser.parse_args()
    if lacking := chromium.missing():
        parser.error(lacking)
    if not (arguments.report / "index.html").is_file():
        parser.error(f"{arguments.report} holds no report; run the target 'report' first")
    with tempfile.TemporaryDirectory() as profile:
        page = chromium.started(Path(profile))
        page.set_script_timeout(300)
        try:
            rows = measured(Report(arguments.report.resolve(), page, axe_of(arguments.axe)), arguments.only)
        finally:
            page.quit()
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    held = sum(row["held"] is True for row in rows)
    print(f"{held} of {len(rows)} checks hold")
    return int(held < len(rows))


if __name__ == "__main__":
    sys.exit(main())
