"""config/README.md describes the configuration as its schema does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from support import ROOT

from gemmrepro.core import schemas
from gemmrepro.host import config_page
from gemmrepro.host.config import SCHEMA


def keys(config: Mapping[str, Any], schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys that the schema names, of those that a configuration holds."""
    for name, value in config.items():
        yield prefix + name
        inner = schema["properties"][name]
        if "properties" in inner and value is not None:
            yield from keys(value, inner, f"{prefix}{name}.")


def test_the_page_is_current() -> None:
    renew = "run PYTHONPATH=workflow envs/run python -m gemmrepro.host.config_page --write"
    assert (ROOT / "config/README.md").read_text() == config_page.page(), renew


def test_the_page_describes_every_key_that_is_shipped() -> None:
    text, schema = (ROOT / "config/README.md").read_text(), schemas.load(SCHEMA)
    shipped = list(keys(yaml.safe_load((ROOT / "config/config.yaml").read_text()), schema))
    assert len(shipped) > 20
    assert [key for key in shipped if f"| `{key}` |" not in text] == []
