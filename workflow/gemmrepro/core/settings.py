"""Settings over settings, as Snakemake merges the files of --configfile."""

from __future__ import annotations

from typing import Any


def merged(below: Any, above: Any) -> Any:
    """`above` over `below`: mappings key by key, everything else replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}
    return above
