"""Tables of measurements as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any


def csv_text(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> str:
    """Rows as CSV text: floats with six significant digits, and an empty cell for None, NaN or a missing value."""

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return buffer.getvalue()
