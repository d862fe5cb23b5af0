"""Configuration as it is written: files, with mistakes that only they show, and settings of the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gemmrepro.core import schemas
from gemmrepro.errors import UserError


def read(path: Path) -> None:
    """Raises UserError, with the file's name, unless `path` holds keys with values in YAML or JSON."""
    try:
        document = schemas.parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the configuration file {path} cannot be read ({error.strerror}); correct its name.") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        why = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise UserError(f"the configuration file {path} is not YAML or JSON: {why}.") from None
    if not isinstance(document, dict):
        raise UserError(f"the configuration file {path} has no keys with values; config/config.yaml describes them.")


def settle(config: dict[str, Any], told: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Make what the user gave whole, before it is checked.

    Snakemake leaves as text what is inside mappings and lists of --config; it is read as in a file. Sizes at which the
    shipped configuration reads counters are left out where they are no longer timed.

    Args:
        config: the whole configuration, changed in place.
        told: what --config gave.
        given: what --configfile and --config gave.
    """
    config.update({key: _typed(config[key], value) for key, value in told.items() if not isinstance(value, str)})
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # what is no mapping is refused by the check
        sizes, counters = config["sweep"]["sizes"], config["sweep"]["counters"]
        for family in given["sweep"]["sizes"].keys() - (given["sweep"].get("counters") or {}).keys():
            counters[family] = [size for size in counters.get(family, ()) if size in sizes[family]]


def _typed(value: Any, given: Any) -> Any:
    """`value` with its texts that are in `given`, too, as YAML has them; text that is no number or constant stays."""
    if isinstance(given, Mapping) and isinstance(value, Mapping):
        return {**value, **{key: _typed(value[key], inner) for key, inner in given.items()}}
    if isinstance(given, list) and isinstance(value, list):
        return [_typed(*pair) for pair in zip(value, given, strict=True)]
    if isinstance(given, str):
        with contextlib.suppress(yaml.YAMLError):
            read = schemas.parse_yaml(given)
            return value if isinstance(read, (dict, list)) else read
    return value


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
