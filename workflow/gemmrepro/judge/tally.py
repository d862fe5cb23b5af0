"""The three tallies, and the articles' statements by way of judging, as Markdown tables computed from verdicts.json.

    python -m gemmrepro tally [results/verdicts.json]

Fails if a statement that is marked as wrong on any GPU turned out to hold: then either the correction or the test is
wrong.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro.core.files import read_json
from gemmrepro.errors import UserError
from gemmrepro.judge.claim import ANYWHERE, ARTICLE
from gemmrepro.judge.judging import SCHEMA
from gemmrepro.judge.rules import RIGHT, VERDICTS
from gemmrepro.judge.ways import REGISTERS, WAYS

VERDICTS_JSON = Path("results/verdicts.json")


def tallies(claims: Sequence[Mapping[str, Any]]) -> str:
    """A table of all claims, a row for each register, and one of the articles' statements, a row for each way."""
    stated = [claim for claim in claims if claim["register"] == ARTICLE]
    by_register = _table("register", REGISTERS, claims)
    return f"{by_register}\n\n{_table('way', WAYS, stated)}"


def unfounded(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the claims that are marked as wrong on any GPU although the statement holds."""
    marked = [claim for claim in claims if claim["correction"] and claim["correction"]["class"] in ANYWHERE]
    return [claim["id"] for claim in marked if claim["verdict"] in RIGHT]


def _table(key: str, words: Sequence[str], claims: Sequence[Mapping[str, Any]]) -> str:
    """Claims by their `key`, which is one of `words`, and by verdict."""
    rows = [[key, "claims", *VERDICTS]]
    for word in words:
        verdicts = [claim["verdict"] for claim in claims if claim[key] == word]
        rows.append([word, str(len(verdicts)), *(str(verdicts.count(kind)) for kind in VERDICTS)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    rows.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    padded = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def main(options: Namespace) -> int:
    """Print the tallies; 1 where a statement that is marked as wrong holds."""
    path = options.verdicts[0] if options.verdicts else VERDICTS_JSON
    document = read_json(path, "the verdicts", "make them with python -m gemmrepro verdicts")
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UserError(f"{path} was written by another version; judge again.")
    print(tallies(document["claims"]))
    holding = unfounded(document["claims"])
    for name in holding:
        print(f"{name} is marked as wrong, yet its statement holds")
    return 1 if holding else 0
