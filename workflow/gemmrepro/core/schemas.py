"""Checks JSON documents against schemas, from workflow/schemas or generated from declarations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from gemmrepro.core.names import RESTORE
from gemmrepro.core.paths import SCHEMAS
from gemmrepro.errors import UserError

if TYPE_CHECKING:
    import jsonschema

Schema = str | Mapping[str, Any]
"""The name of a file in workflow/schemas, or a schema itself."""


@cache
def load(name: str) -> dict[str, Any]:
    """The schema in workflow/schemas/<name>."""
    try:
        from gemmrepro.core import yaml_text
    except ImportError as error:
        raise _missing(error) from None
    return yaml_text.parse((SCHEMAS / name).read_text())


@cache
def _validator(text: str, whole_numbers: bool) -> jsonschema.protocols.Validator:
    try:
        import jsonschema
    except ImportError as error:
        raise _missing(error) from None
    kind = jsonschema.Draft202012Validator
    if whole_numbers:
        types = kind.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
        extend: Any = jsonschema.validators.extend
        return extend(kind, type_checker=types)(json.loads(text))
    return kind(json.loads(text))


def _is_integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    return _is_integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


def _missing(error: ImportError) -> UserError:
    return UserError(f"{error.name} cannot be imported; install it, or use the project's report image.")


def errors(instance: Any, schema: Schema, *, whole_numbers: bool = False) -> Iterator[jsonschema.ValidationError]:
    """Every violation of `schema` by `instance`.

    Args:
        whole_numbers: take 90.0 for no integer, and NaN and infinity for no number, as a person's document should be
            read; JSON Schema itself does not tell 90.0 from 90.

    Raises:
        UserError: jsonschema or PyYAML is not installed.
    """
    document = load(schema) if isinstance(schema, str) else schema
    return _validator(json.dumps(document), whole_numbers).iter_errors(instance)


def check(instance: Any, schema: Schema, what: str, remedy: str = RESTORE) -> None:
    """Raise if `instance` does not match `schema`.

    Raises:
        UserError: names `what`, the first wrong field and the `remedy`.
    """
    for error in errors(instance, schema):
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        raise UserError(f"{what} is corrupt: {where}: {error.message}; {remedy}.")
