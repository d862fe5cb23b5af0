"""The index of the search field: claims, kernels and terms, as a script that the pages load when it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from gemmrepro.paper.claims import ClaimView
from gemmrepro.paper.family import FamilyView

SEARCH = "assets/search.js"
"""Its place in the bundle."""

LONGEST = 60
"""Characters of a claim's statement that are kept."""

_TERM = re.compile(r'<dt[^>]* id="(term-[^"]+)"[^>]*>(.*?)</dt>', re.DOTALL)


def search_script(claims: Sequence[ClaimView], families: Sequence[FamilyView], paper: str) -> str:
    """The script: ``gemmreproSearch({claims: …, kernels: …, terms: …})``, each a list of id and words.

    The terms are those that `paper` defines: ``<dt id="term-…">``.
    """
    told = {
        "claims": [[claim.id, _cut(claim.statement)] for claim in claims],
        "kernels": [[kernel.id, kernel.heading] for family in families for kernel in family.kernels],
        "terms": [[ident, re.sub(r"<[^>]+>", "", term)] for ident, term in _TERM.findall(paper)],
    }
    return f"gemmreproSearch({json.dumps(told, separators=(',', ':'), ensure_ascii=False)});\n"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"
