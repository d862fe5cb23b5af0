"""What the user gave: configuration files, settings on the command line, and targets.

    python -m gemmrepro.host.command_line ARGUMENT...

checks a command line of Snakemake's for mistakes that Snakemake answers with a traceback, before it reads the
Snakefile: one line on stderr and exit code 1 for the first.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gemmrepro.core import schemas
from gemmrepro.errors import UserError, run_stage


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

    Snakemake leaves as text what is inside mappings and lists of --config; it is read as in a file. Of the shipped
    configuration's choices among sizes, those that are no longer timed are left out.

    Args:
        config: the whole configuration, changed in place.
        told: what --config gave.
        given: what --configfile and --config gave.
    """
    config.update({key: _typed(config[key], value) for key, value in told.items() if not isinstance(value, str)})
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # what is no mapping is refused by the check
        sweep, mine = config["sweep"], given["sweep"]
        for key in ("counters", "sizes_of", "kernels_at"):
            for family in mine["sizes"].keys() & sweep[key].keys() - (mine.get(key) or {}).keys():
                few = sweep[key][family]
                kept: Any = [size for size in sizes_in(few) if size in sweep["sizes"][family]]
                kept = kept or ([] if key == "counters" else None)
                sweep[key][family] = few | {"sizes": kept} if kept and key == "kernels_at" else kept


def sizes_in(few: Mapping[str, Any] | Sequence[int] | None) -> Sequence[int]:
    """The sizes that a choice of `counters`, `sizes_of` or `kernels_at` is about."""
    return few["sizes"] if isinstance(few, Mapping) else few or ()


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

    A file that is missing, not YAML or too deep has none: it is refused when it is read, or by the schema.
    """
    waiting: list[tuple[tuple[str, ...], yaml.Node | None]] = []
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        waiting.append(((), yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)))
    seen = set[int]()
    while waiting:
        place, node = waiting.pop()
        if node is None or id(node) in seen:  # an alias, which may stand inside its own anchor
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [((*place, str(index)), item) for index, item in enumerate(node.value)]
        lines: dict[str, int] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):  # another is refused when it is read
                here, line = (*place, str(key.value)), key.start_mark.line + 1
                if key.value in lines:
                    both = f"lines {lines[key.value]} and {line}"
                    yield f"{'.'.join(here)} is in {path.name} twice, in {both}; delete one"
                lines[str(key.value)] = line
                waiting.append((here, value))


CONFIG = Path("config/config.yaml")
_QUIET = ("all", "host", "progress", "reason", "rules")
_BEFORE = "put targets before the options, or after --"


def check(arguments: Sequence[str]) -> None:
    """Raises UserError for a configuration file that cannot be read, and for a target that an option takes."""
    if CONFIG.parent.is_dir():
        read(CONFIG)
    option = ""
    for word in arguments:
        if word == "--":
            return
        if word.startswith("-"):
            option, _, word = word.partition("=")
            if not word:
                continue
        if option in ("--configfile", "--configfiles"):
            if not Path(word).suffix and not Path(word).exists():
                raise UserError(f"{option} takes {word!r} for a file; {_BEFORE}.")
            read(Path(word))
        elif option in ("--config", "-C") and "=" not in word:
            raise UserError(f"{option} takes {word!r} for a setting, which is key=value; {_BEFORE}.")
        elif option in ("--quiet", "-q") and word not in _QUIET:
            raise UserError(f"{option} takes {word!r} for one of {', '.join(_QUIET)}; {_BEFORE}.")


def main() -> None:
    check(sys.argv[1:])


if __name__ == "__main__":
    run_stage(main)


ONLY = "GEMMREPRO_ONLY"
"""Environment variable that hands the choice on to the jobs of a run, which read the Snakefile again."""

_FILE = re.compile(r"results/(?:build/\w+|gates(?:/numeric)?)/(?P<kernel>\w+\.\w+)\.(?:json|fatbin|sass)")


def only(arguments: Sequence[str], environ: Mapping[str, str], main: bool) -> frozenset[str]:
    """The kernels whose builds or gates alone are asked for; empty if all may be needed.

    Args:
        arguments: those of Snakemake's command line.
        environ: the process's environment.
        main: whether this is the process that the user started; a job's takes what it was handed.
    """
    if not main and ONLY in environ:
        return frozenset(filter(None, environ[ONLY].split(",")))
    if not any(map(_FILE.fullmatch, arguments)):
        return frozenset()
    found = [_FILE.fullmatch(target) for target in _targets(arguments)]
    return frozenset(match["kernel"] for match in found if match) if all(found) else frozenset()


def check_targets(arguments: Sequence[str], names: Iterable[str], makes: Callable[[str], bool]) -> None:
    """Check the targets on Snakemake's command line, and what its options name.

    Args:
        arguments: those of Snakemake's command line.
        names: the rules, and the files that they make, as far as they can be listed.
        makes: whether a rule makes a file.

    Raises:
        UserError: a target is none of them and no file; names the nearest.
    """
    known = list(names)
    for target in _targets(arguments, *_NAMING):
        if target in known or makes(target) or Path(target).exists():
            continue
        near = difflib.get_close_matches(target, known, n=1)
        ask = f"did you mean {near[0]}?" if near else "the README lists the targets, and --list-rules the rules."
        raise UserError(f"there is no target {target!r}; {ask}")


_NAMING = ("forcerun", "until", "omit_from", "prioritize", "allowed_rules")
"""Options of Snakemake's that take targets or rules."""


def _targets(arguments: Sequence[str], *options: str) -> list[str]:
    """The targets on Snakemake's command line, as Snakemake reads it, and what some options name."""
    from snakemake.cli import get_argument_parser

    try:
        known, _ = get_argument_parser().parse_known_args(list(arguments))
    except SystemExit:  # it was started by something else than its own command
        return []
    return [str(target) for option in ("targets", *options) for target in getattr(known, option, None) or ()]
