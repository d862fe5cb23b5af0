"""How a check refuses a recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro.core.names import RESTORE
from gemmrepro.errors import UserError

POINT = ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache")
"""The columns that name a point of a summary and of samples."""


def refused(path: Path, place: str, why: str) -> UserError:
    """The error for `place` ("line 7", "the case 3 of ladder.naive") of the recording `path`."""
    where = f"{place} of the recording {path}" if place else f"the recording {path}"
    return UserError(f"{where} is corrupt: {why}; {RESTORE}.")


def named(row: Mapping[str, Any]) -> str:
    """A row's point, for a message."""
    return " ".join(str(row[column]) for column in POINT if row[column] not in ("", None))
