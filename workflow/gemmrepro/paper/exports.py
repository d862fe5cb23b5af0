"""The report's data for programs: claims as CSV, how to cite the report, and a badge."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from html import escape

from gemmrepro.judge.rules import VERDICTS
from gemmrepro.judge.ways import REGISTERS, WAYS
from gemmrepro.paper.claims import ClaimView, VerdictsView

CLAIM_COLUMNS = {
    "id": "name of the claim",
    "family": "the kernels that it is about",
    "article": "the article that states it",
    "where": "the place in the article",
    "register": "article, build or project",
    "way": "how it is judged",
    "verdict": "the verdict",
    "published": "the published value, in `unit`; empty where the claim is in words",
    "expected": "what the published value makes expect on this GPU, where that is another value",
    "measured": "the value that was judged; empty where nothing was",
    "low": "lower end of its 95% interval",
    "high": "upper end of its 95% interval",
    "unit": "unit of the measured value; empty for a ratio",
    "tolerance": "relative tolerance",
    "judged_on": "the toolkit that it was judged with",
    "statement": "the claim, restated",
    "explanation": "why the verdict is what it is",
    "evidence": "rows behind the value, separated by `; `",
}
"""The columns of claims.csv and their meanings."""


def claims_csv(verdicts: VerdictsView, published: Mapping[str, float | None]) -> str:
    """Every claim as a row; `published` holds the value in print by claim id."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CLAIM_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(claim, published.get(claim.id)) for claim in verdicts.claims)
    return text.getvalue()


def _row(claim: ClaimView, published: float | None) -> dict[str, object]:
    row: dict[str, object] = {
        name: getattr(claim, name)
        for name in CLAIM_COLUMNS
        if name not in ("published", "measured", "low", "high", "unit", "evidence")
    }
    row["published"] = published
    if claim.judged:
        value = claim.judged[0]
        unit = "" if value.unit in ("ratio", "count") else value.unit
        row |= {"measured": value.value, "low": value.low, "high": value.high, "unit": unit}
        row["evidence"] = "; ".join(key for each in claim.judged for key, _ in each.rows)
    return row


def claims_schema() -> dict[str, object]:
    """How claims.csv is to be read, as a Table Schema (https://specs.frictionlessdata.io/table-schema/)."""
    numbers = {"published", "expected", "measured", "low", "high", "tolerance"}
    words = {"register": REGISTERS, "way": WAYS, "verdict": VERDICTS}
    always = {"id", "family", "article", "statement", "explanation", *words}

    def field(name: str) -> dict[str, object]:
        told = {"required": name in always, "unique": name == "id", "enum": list(words.get(name, ()))}
        kind = "number" if name in numbers else "string"
        constraints = {key: value for key, value in told.items() if value}
        return {"name": name, "type": kind, "description": CLAIM_COLUMNS[name], "constraints": constraints}

    return {"primaryKey": "id", "fields": [field(name) for name in CLAIM_COLUMNS], "missingValues": [""]}


def _badge_texts(verdicts: VerdictsView) -> tuple[str, str]:
    """The two halves of the badge."""
    held, judged = verdicts.counts["article"]["reproduced"], verdicts.decided
    return "claims", f"{held} of {judged} hold" if judged else "not measured"


def badge_endpoint(verdicts: VerdictsView) -> str:
    """The badge as JSON for an endpoint of shields.io (https://shields.io/badges/endpoint-badge)."""
    label, message = _badge_texts(verdicts)
    return json.dumps({"schemaVersion": 1, "label": label, "message": message, "color": "blue"}) + "\n"


def badge(verdicts: VerdictsView) -> str:
    """An SVG that says how many of the articles' judged statements hold."""
    left, right = _badge_texts(verdicts)
    widths = [7 * len(text) + 12 for text in (left, right)]
    total, middle = sum(widths), widths[0]
    label = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect width="{total}" height="20" rx="3" fill="#24292f"/>'
        f'<path d="M{middle} 0h{widths[1] - 3}q3 0 3 3v14q0 3-3 3h-{widths[1] - 3}z" fill="#0a58a8"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{middle / 2:g}" y="14">{left}</text>'
        f'<text x="{middle + widths[1] / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )
