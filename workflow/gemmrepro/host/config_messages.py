"""A violation of the configuration's schema as a sentence that names the key and says what to write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import jsonschema

TYPES = {
    "array": "a list in brackets",
    "integer": "a whole number",
    "number": "a number",
    "object": "keys with values",
    "string": "text",
    "null": "null",
    "boolean": "true or false",
}
_LONGEST = 60


def sentence(error: jsonschema.ValidationError) -> str:
    """The key, what it must be, and what it is.

    Args:
        error: a violation of config.schema.yaml.
    """
    key = ".".join(str(part) for part in error.absolute_path)
    schema, wanted, instance = cast(Any, error.schema), cast(Any, error.validator_value), cast(Any, error.instance)
    if error.validator == "anyOf":
        # The alternative that the value looks like says more than all of them together.
        if inner := [each for each in error.context if each.validator != "type"]:
            return sentence(inner[0])
        names = " or ".join(_asked("type", each.validator_value) for each in error.context)
        return f"{key} must be {names}, not {shown(instance)}"
    if error.validator == "additionalProperties":
        known = schema.get("properties", {})
        unknown = sorted(str(name) for name in instance if name not in known)
        where = f"in {key}" if key else "at the top level"
        return f"there is no key {shown(unknown[0])} {where}; choose among {', '.join(known)}"
    if error.validator == "required":
        missing = [name for name in wanted if name not in instance]
        prefix = f"{key}." if key else ""
        return f"{prefix}{missing[0]} is missing; add it, as in config/config.yaml"
    asked = _asked(str(error.validator), wanted) or schema.get("description", "as config/README.md says")
    return f"{key or 'the configuration'} must be {asked}, not {shown(instance)}"


def _asked(keyword: str, wanted: Any) -> str:
    """What a keyword of the schema asks for; empty for one that has no short name."""
    match keyword:
        case "enum":
            return "one of " + ", ".join(map(str, wanted))
        case "const":
            return str(wanted)
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            return " or ".join(TYPES[name] for name in names)
        case "minimum":
            return f"at least {wanted}"
        case "exclusiveMinimum":
            return f"more than {wanted}"
        case "maximum":
            return f"at most {wanted}"
        case "minItems":
            return f"a list of {wanted} or more"
        case "maxItems":
            return f"a list of {wanted} or fewer"
        case "uniqueItems":
            return "a list without repetitions"
        case "minProperties":
            return f"{wanted} or more keys with values"
        case "pattern":
            return "a name of lower-case letters, digits and hyphens"
        case _:
            return ""


def shown(value: Any) -> str:
    """A value as a message quotes it: in one line, and not longer than half of one."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
