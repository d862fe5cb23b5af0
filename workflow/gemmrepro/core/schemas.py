"""Reads YAML, and checks documents against schemas from workflow/schemas or generated from declarations."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gemmrepro.core.names import RESTORE
from gemmrepro.core.paths import SCHEMAS
from gemmrepro.errors import UserError, at_line

if TYPE_CHECKING:
    import jsonschema

Schema = str | Mapping[str, Any]
"""The name of a file in workflow/schemas, or a schema itself."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_LOADER):  # type: ignore[misc]
    """Refuses a key that stands twice, of which YAML's own takes the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key '{key.value}' is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_DEPTH = 10_000
"""Collections that a document may open for libyaml, which runs out of stack where Python stops at its limit."""


def parse_yaml(text: str) -> Any:
    """The document `text`. Raises yaml.YAMLError if it is none, RecursionError if it is nested too deeply."""
    opened = sum(text.count(sign) for sign in ("[", "{", "- ", "? "))
    return yaml.load(text, Loader=_Loader if opened < _DEPTH else yaml.SafeLoader)


@cache
def load(name: str) -> dict[str, Any]:
    """The schema in workflow/schemas/<name>."""
    return parse_yaml((SCHEMAS / name).read_text())


def words(name: str, definition: str) -> dict[str, str]:
    """The words that a definition of workflow/schemas/<name> lists, and what each means."""
    return {each["const"]: each["description"] for each in load(name)["$defs"][definition]["oneOf"]}


@cache
def _validator(text: str, whole_numbers: bool) -> jsonschema.protocols.Validator:
    try:
        import jsonschema
    except ImportError as error:
        raise UserError(f"{error.name} cannot be imported; install it, or use the project's report image.") from None
    kind = jsonschema.Draft202012Validator
    if whole_numbers:
        types = kind.TYPE_CHECKER.redefine_many({"integer": lambda _, value: type(value) is int, "number": _is_number})
        extend: Any = jsonschema.validators.extend
        return extend(kind, type_checker=types)(json.loads(text))
    return kind(json.loads(text))


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def errors(instance: Any, schema: Schema, *, whole_numbers: bool = False) -> Iterator[jsonschema.ValidationError]:
    """Every violation of `schema` by `instance`. Raises UserError if jsonschema is not installed.
    With `whole_numbers`, as a person's document should be read, 90.0 is no integer; NaN and infinity are no numbers."""
    document = load(schema) if isinstance(schema, str) else schema
    return _validator(json.dumps(document), whole_numbers).iter_errors(instance)


LONGEST = 160
"""Letters of a message that are shown; of more, the first and last halves."""

_KINDS = {"string": "text", "object": "keys with values", "array": "a list", "boolean": "true or false"}
_KINDS |= {"integer": "a whole number", "number": "a number", "null": "null"}
_REMEDIES = {"required": "add it", "dependentRequired": "add it", "not": "remove it"}
_REMEDIES |= {"uniqueItems": "leave one of each", "maxLength": "shorten it", "unevaluatedProperties": "remove it"}


def keys_of(violation: Any) -> list[str | int]:
    """The keys that lead to what is wrong, down to one that may not be there."""
    schema = violation.schema
    extra = violation.validator == "additionalProperties" and not schema["additionalProperties"]
    unknown = [key for key in violation.instance if key not in schema.get("properties", {})] if extra else []
    return [*violation.absolute_path, *map(str, unknown[:1])]


def depth(document: Any, keys: Sequence[str | int]) -> int:
    """How many of `keys` lead on in a document."""
    with contextlib.suppress(KeyError, IndexError, TypeError):
        return 1 + depth(document[keys[0]], keys[1:])
    return 0


def told(violation: Any) -> str:
    """What is wrong, and the remedy: the keys or words that there are, or the schema's own words."""
    schema = violation.schema if violation.absolute_path or violation.validator == "oneOf" else {}
    why, kind, words = violation.message, str(violation.validator), schema.get("title") or schema.get("description")
    match kind:
        case "additionalProperties":
            remedy = f"choose among {', '.join(violation.schema.get('properties', {}))}"
        case "enum":
            remedy = f"choose one of {', '.join(map(str, violation.validator_value))}"
        case "type" if not schema.get("title"):
            kinds = violation.validator_value
            kinds = " or ".join(_KINDS[each] for each in ([kinds] if isinstance(kinds, str) else kinds))
            remedy = f"write {kinds}: {words}" if words else f"write {kinds}"
        case _:
            remedy = _REMEDIES.get(kind) or str(words or "correct it")
    why = {"not": "may not stand here", "oneOf": "these keys do not go together"}.get(kind, why)
    why = why if len(why) <= LONGEST else f"{why[: LONGEST // 2]} ... {why[-LONGEST // 2 :]}"
    return f"{why}; {remedy.rstrip('.')}"


def check(instance: Any, schema: Schema, what: str, remedy: str = RESTORE) -> None:
    """Raise UserError, which names `what`, the first wrong field and the `remedy`, if `instance` is not as `schema`."""
    for error in errors(instance, schema):
        where = ".".join(str(part) for part in error.absolute_path) or "the whole"
        raise UserError(f"{what} is corrupt: {where}: {error.message}; {remedy}.")


def read_yaml(path: Path, schema: str) -> Any:
    """The document at `path`, which matches workflow/schemas/<schema>.
    Raises UserError, with every wrong key, if the file is missing, is not YAML, or does not match."""
    document = yaml_at(path, text_at(path))
    if found := list(errors(document, schema, whole_numbers=True)):
        wrong = [each for each in found if each.validator != "oneOf"] or found
        raise UserError(*(f"{place(path, *keys_of(each))}: {told(each)}." for each in wrong))
    return document


def text_at(path: Path) -> str:
    """A file's text, without a byte order mark. Raises UserError if it cannot be read, or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); correct its name, or restore it.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise at_line(path, line, "it is not UTF-8; save the file as such.") from None


def yaml_at(path: Path, text: str) -> Any:
    """The YAML document `text` of the file `path`. Raises UserError if it is none, with the line."""
    try:
        return parse_yaml(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        line = mark.line if mark else text.encode()[: getattr(error, "position", 0)].count(b"\n")
        raise at_line(path, line + 1, f"not YAML: {' '.join(why.split())}; correct it.") from None


def place(path: Path, *keys: str | int) -> str:
    """``path, line 12, key 'a.b'``: where a YAML file has a key, or the nearest above it that it has."""
    node, line = yaml.compose(text_at(path), Loader=_LOADER), 1
    for key in keys:
        found: Any = None
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(key)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            found = (node.value[key], node.value[key])
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    where = ".".join(str(key) for key in keys) or "the top level"
    return f"{path}, line {line}, key '{where}'"


def merged(below: Any, above: Any) -> Any:
    """`above` over `below`: mappings key by key, everything else replaced."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}
    return above
