"""YAML as plain values, by libyaml where PyYAML was built with it: seven times as fast as in Python."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEPTH = 10_000
"""Collections that a document may open for libyaml, which runs out of stack where Python stops at its limit."""


def parse(text: str) -> Any:
    """The document `text`. Raises yaml.YAMLError if it is none, RecursionError if it is nested too deeply."""
    opened = sum(text.count(sign) for sign in ("[", "{", "- ", "? "))
    return yaml.load(text, Loader=_LOADER if opened < _DEPTH else yaml.SafeLoader)
