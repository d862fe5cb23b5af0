"""The user's input: configuration files, settings on the command line, and targets.

    python -m gemmrepro.host.command_line ARGUMENT...

checks Snakemake's command line before Snakemake would answer with a traceback: one line on stderr, exit code 1.
"""

import contextlib
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gemmrepro.core import schemas
from gemmrepro.errors import UserError, run_stage


def check_file(path: Path) -> None:
    """Raises UserError, with the file's name, unless `path` holds keys with values in YAML or JSON, no key twice."""
    document = schemas.yaml_at(path, schemas.text_at(path))
    if not isinstance(document, dict):
        raise UserError(f"the configuration file {path} has no keys with values; config/config.yaml describes them.")


def settle(config: dict[str, Any], told: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Make the configuration whole, in place, before it is checked.
    Text inside mappings and lists of --config (`told`) is read as in a file. The shipped choices among sizes lose those
    that --configfile or --config (`given`) no longer times."""
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


ONLY = "GEMMREPRO_ONLY"
"""Environment variable that hands the choice on to the jobs of a run, which read the Snakefile again."""

_FILE = re.compile(r"results/(?:build/\w+|gates(?:/numeric)?)/(?P<kernel>\w+\.\w+)\.(?:json|fatbin|sass)")


def only(arguments: Sequence[str], environ: Mapping[str, str], main: bool) -> frozenset[str]:
    """The kernels whose builds or gates alone Snakemake's command line asks for; empty if all may be needed.
    `main`: whether this is the process that the user started; a job's takes what it was handed in `environ`."""
    if not main and ONLY in environ:
        return frozenset(filter(None, environ[ONLY].split(",")))
    if not any(map(_FILE.fullmatch, arguments)):
        return frozenset()
    matches = [_FILE.fullmatch(target) for target in _targets(arguments)]
    return frozenset(match["kernel"] for match in matches if match) if all(matches) else frozenset()


def check_targets(arguments: Sequence[str], names: Iterable[str], makes: Callable[[str], bool]) -> None:
    """Raises UserError if Snakemake's command line names what is no rule, nothing that one makes, and no file.
    `names`: the rules and the files that can be listed; `makes`: whether a rule makes a file."""
    listed = list(names)
    for target in _targets(arguments, *_NAMING):
        if target in listed or makes(target) or Path(target).exists():
            continue
        near = difflib.get_close_matches(target, listed, n=1)
        ask = f"did you mean {near[0]}?" if near else "the README lists the targets, and --list-rules the rules."
        raise UserError(f"there is no target {target!r}; {ask}")


_NAMING = ("forcerun", "until", "omit_from", "prioritize", "allowed_rules")
"""Options of Snakemake's that take targets or rules."""


def _targets(arguments: Sequence[str], *options: str) -> list[str]:
    from snakemake.cli import get_argument_parser

    try:
        parsed, _ = get_argument_parser().parse_known_args(list(arguments))
    except SystemExit:  # it was started by something else than its own command
        return []
    return [str(target) for option in ("targets", *options) for target in getattr(parsed, option, None) or ()]


CONFIG = Path("config/config.yaml")
_QUIET = ("all", "host", "progress", "reason", "rules")
_BEFORE = "put targets before the options, or after --"


def check(arguments: Sequence[str]) -> None:
    """Raises UserError for a configuration file that cannot be read, and for a target that an option takes."""
    if CONFIG.parent.is_dir():
        check_file(CONFIG)
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
            check_file(Path(word))
        elif option in ("--config", "-C") and "=" not in word:
            raise UserError(f"{option} takes {word!r} for a setting, which is key=value; {_BEFORE}.")
        elif option in ("--quiet", "-q") and word not in _QUIET:
            raise UserError(f"{option} takes {word!r} for one of {', '.join(_QUIET)}; {_BEFORE}.")


if __name__ == "__main__":
    run_stage(lambda: check(sys.argv[1:]))
