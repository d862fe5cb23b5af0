"""Checks JSON documents against schemas, from workflow/schemas or generated from declarations."""

from __future__ import annotations

import json
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
        import yaml
    except ImportError as error:
        raise _missing(error) from None
    return yaml.safe_load((SCHEMAS / name).read_text())


@cache
def _validator(text: str) -> jsonschema.Draft202012Validator:
    try:
        import jsonschema
    except ImportError as error:
        raise _missing(error) from None
    return jsonschema.Draft202012Validator(json.loads(text))


def _missing(error: ImportError) -> UserError:
    return UserError(f"{error.name} cannot be imported; install it, or use the project's report image.")


def errors(instance: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """Every violation of `schema` by `instance`.

    Raises:
        UserError: jsonschema or PyYAML is not installed.
    """
    document = load(schema) if isinstance(schema, str) else schema
    return _validator(json.dumps(document)).iter_errors(instance)


def check(instance: Any, schema: Schema, what: str, remedy: str = RESTORE) -> None:
    """Raise if `instance` does not match `schema`.

    Raises:
        UserError: names `what`, the first wrong field and the `remedy`.
    """
    for error in errors(instance, schema):
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        raise UserError(f"{what} is corrupt: {where}: {error.message}; {remedy}.")
