"""config/README.md: every key of the configuration, from the schema's descriptions and the shipped defaults.

``python -m gemmrepro.host.config_page --write`` renews it; without ``--write`` it is printed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gemmrepro.core import schemas
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import run_stage
from gemmrepro.host.config import SCHEMA

PAGE = ROOT / "config" / "README.md"
DEFAULTS = ROOT / "config" / "config.yaml"

INTRODUCTION = """\
# Configuration

`config.yaml` holds the defaults. To change some of them, put those keys alone into a file of your own and name it:

```sh
envs/run snakemake --use-singularity --cores 1 --configfile my.yaml
```

Mappings are merged key by key; lists are replaced. A key without inner keys can also be set on the command line
(`--config measure=recorded`). A wrong value is refused before anything runs, by its key.
{shipped}
This page is made from `workflow/schemas/config.schema.yaml` by
`PYTHONPATH=workflow envs/run python -m gemmrepro.host.config_page --write`.

| key | values | default | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    schema, defaults = schemas.load(SCHEMA), yaml.safe_load(DEFAULTS.read_text())
    rows = "".join(
        f"| `{key}` | {_cell(values)} | {_cell(default)} | {_cell(meaning)} |\n"
        for key, values, default, meaning in _rows(schema, defaults, schema, "")
    )
    return INTRODUCTION.format(shipped=_shipped()) + rows


def _shipped() -> str:
    """A sentence for each other file in config/, from the comment that it begins with."""
    text = ""
    for file in sorted(DEFAULTS.parent.glob("*.yaml")):
        if file != DEFAULTS:
            lines = file.read_text().splitlines()
            comment = [line.lstrip("# ") for line in lines if line.startswith("#") and "snakemake --" not in line]
            text += f"- `{file.name}`: {' '.join(comment)}\n"
    return f"\nAlso here:\n\n{text}" if text else ""


def _rows(
    schema: Mapping[str, Any], defaults: Any, whole: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str, str]]:
    """Key, values, default and meaning of every key, an outer key before its inner ones."""
    for name, entry in schema.get("properties", {}).items():
        inner = _resolved(entry, whole)
        key = prefix + name
        default = defaults.get(name) if isinstance(defaults, Mapping) else None
        if "properties" in inner:
            yield key, "keys below", "", inner["description"]
            yield from _rows(inner, default, whole, f"{key}.")
        else:
            yield key, _values(inner, whole), _default(default), inner["description"]


def _resolved(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """`entry` with its reference followed; what it says itself wins."""
    if "$ref" not in entry:
        return entry
    target = whole["$defs"][entry["$ref"].rpartition("/")[2]]
    return {**target, **{name: value for name, value in entry.items() if name != "$ref"}}


def _values(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """What a value may be, in words."""
    entry = _resolved(entry, whole)
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    if "const" in entry:
        return f"`{entry['const']}`"
    if choices := entry.get("anyOf") or [entry[word] for word in ("else", "then") if word in entry]:
        typed = [choice if "items" not in choice else {"type": "array", **choice} for choice in choices]
        return " or ".join(_values(choice, whole) for choice in typed)
    kind = entry.get("type")
    if isinstance(kind, list):
        return " or ".join(_values({**entry, "type": one}, whole) for one in kind)
    if kind == "array":
        if entry.get("minItems") == entry.get("maxItems") == 2:
            return f"`[minimum, maximum]`, each {_values(entry['items'], whole)}"
        items = _values(entry.get("items", {}), whole)
        return "list of " + items.replace("whole number", "whole numbers").replace("name", "names")
    if kind == "object":
        if fields := entry.get("properties"):
            return "`{" + ", ".join(fields) + "}`"
        inner = entry.get("additionalProperties")
        return f"by name: {_values(inner, whole)}" if inner else "settings"
    return {"integer": "whole number", "string": "name", "null": "`null`"}.get(str(kind), str(kind)) + _bounds(entry)


def _bounds(entry: Mapping[str, Any]) -> str:
    """The bounds of a number, in words."""
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    text = " ".join(f"{word} {entry[name]}" for name, word in words.items() if name in entry)
    return f" {text}" if text else ""


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping) and value:
        return "; ".join(f"{name}: `{json.dumps(inner)}`" for name, inner in value.items())
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew config/README.md")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        print(page(), end="")


if __name__ == "__main__":
    run_stage(main)
