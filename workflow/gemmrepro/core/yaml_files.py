"""Reads YAML documents that this repository holds, checked against their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gemmrepro.core import schemas, yaml_text
from gemmrepro.errors import UserError


def read(path: Path, schema: str) -> Any:
    """The document at `path`, which matches workflow/schemas/<schema>.

    Raises:
        UserError: the file is missing, is not YAML, or does not match; names the first wrong key.
    """
    try:
        document = yaml_text.parse(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path} is missing; restore it from the repository.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    for wrong in schemas.errors(document, schema):
        where = ".".join(str(part) for part in wrong.absolute_path) or "the top level"
        raise UserError(f"{path}, key '{where}': {wrong.message}. See workflow/schemas/{schema}.")
    return document
