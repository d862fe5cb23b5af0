"""Reading a recording's documents, and the errors that refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json
from gemmrepro.core.names import RESTORE
from gemmrepro.core.text import hidden_character
from gemmrepro.errors import UserError

POINT = ("kernel", "toolkit", "dtype", "m", "n", "k", "d", "cache")
"""The columns that name a point of a summary and of samples."""


def read_document(path: Path, schema: str) -> Any:
    """A recording's JSON. Raises UserError if it is missing or corrupt, or holds text that does not show as it is."""
    document = read_json(path, "the recording", RESTORE)
    schemas.check(document, schema, f"the recording {path}")
    if hidden := hidden_character(path.read_text()):
        raise refused(path, "", f"it holds the character {hidden}, which does not show")
    return document


def refused(path: Path, place: str, why: str) -> UserError:
    """The error for `place` ("line 7", "the case 3 of ladder.naive") of the recording `path`."""
    return UserError(f"{_where(path, place)} is corrupt: {why}; {RESTORE}.")


def exceeded(path: Path, place: str, what: str, of: str, value: str, most: float, source: str) -> UserError:
    """The error for a value of `what` that no card can have: the limit `of` something is `most`, by its `source`."""
    why = f"{what} exceeds the limit of {of}: {value} above {most:.4g} ({source})"
    return UserError(f"{_where(path, place)}: {why}; {RESTORE}.")


def _where(path: Path, place: str) -> str:
    return f"{place} of the recording {path}" if place else f"the recording {path}"


def named(row: Mapping[str, Any]) -> str:
    """A row's point, for a message."""
    return " ".join(str(row[column]) for column in POINT if row[column] not in ("", None))
