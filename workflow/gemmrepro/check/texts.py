"""Each number in a family's findings.md is a cell of the reference recording."""

from __future__ import annotations

from gemmrepro.check.findings import Findings
from gemmrepro.errors import UserError
from gemmrepro.paper import findings as texts


def check(family: str, findings: Findings) -> None:
    try:
        texts.render(family, {})
    except UserError as error:
        where, _, what = str(error).partition(": ")
        findings.require(False, where, what)
