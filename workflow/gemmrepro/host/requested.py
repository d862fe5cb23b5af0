"""What a command of Snakemake asks for: which kernels, where it names files of single ones, and whether it exists."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gemmrepro.errors import UserError

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
    if not any(_FILE.fullmatch(argument) for argument in arguments):
        return frozenset()
    return named_by(_targets(arguments))


def named_by(targets: Iterable[str]) -> frozenset[str]:
    """The kernels that targets name; empty unless each target is a build or a gate of one kernel."""
    matches = [_FILE.fullmatch(target) for target in targets]
    return frozenset(match["kernel"] for match in matches if match) if all(matches) else frozenset()


def check_targets(arguments: Sequence[str], names: Iterable[str], makes: Callable[[str], bool]) -> None:
    """Check the targets on Snakemake's command line.

    Args:
        arguments: those of Snakemake's command line.
        names: the rules, and the files that they make, as far as they can be listed.
        makes: whether a rule makes a file.

    Raises:
        UserError: a target is none of them and no file; names the nearest.
    """
    known = list(names)
    for target in _targets(arguments):
        if target in known or makes(target) or Path(target).exists():
            continue
        near = difflib.get_close_matches(target, known, n=1)
        ask = f"did you mean {near[0]}?" if near else "the README lists the targets, and --list-rules the rules."
        raise UserError(f"there is no target {target!r}; {ask}")


def _targets(arguments: Sequence[str]) -> list[str]:
    """The targets on Snakemake's command line, as Snakemake reads it."""
    from snakemake.cli import get_argument_parser

    try:
        known, _ = get_argument_parser().parse_known_args(list(arguments))
    except SystemExit:  # it was started by something else than its own command
        return []
    return [str(target) for target in known.targets]
