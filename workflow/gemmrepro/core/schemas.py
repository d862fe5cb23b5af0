"""JSON documents checked against workflow/schemas/."""

from __future__ import annotations

from typing import Any

from gemmrepro.core.paths import SCHEMAS
from gemmrepro.errors import UserError
from gemmrepro.measure.rows import _REMEDY


def check(instance: Any, schema: str, what: str) -> None:
    """Check `instance` against workflow/schemas/<schema>. Raises UserError, naming `what` and the wrong field."""
    try:
        import jsonschema
        import yaml
    except ImportError as error:
        raise UserError(f"{error.name} cannot be imported; install it, or use the project's report image.") from None

    validator = jsonschema.Draft202012Validator(yaml.safe_load((SCHEMAS / schema).read_text()))
    for error in validator.iter_errors(instance):
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        raise UserError(f"{what} is corrupt: {where}: {error.message}; {_REMEDY}.")
