"""Mistakes that only the file shows: YAML keeps the last of two equal keys and says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml


def repeated_keys(path: Path) -> Iterator[str]:
    """A sentence for every key that a mapping of the file has twice, with its line.

    A file that is missing or not YAML has none: Snakemake refuses it when it reads it.
    """
    try:
        document = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return
    if document is not None:
        yield from _repeated(document, (), path.name, set())


def _repeated(node: yaml.Node, place: tuple[str, ...], name: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias, which may stand inside its own anchor
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*place, str(index)), name, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        here = (*place, str(key.value))
        if key.value in lines:
            yield f"{'.'.join(here)} is in {name} twice, in lines {lines[key.value]} and {line}; delete one"
        lines[str(key.value)] = line
        yield from _repeated(value, here, name, seen)
