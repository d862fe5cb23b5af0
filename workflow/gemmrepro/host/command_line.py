"""Mistakes in Snakemake's command line that it answers with a traceback, before it reads the Snakefile.

python -m gemmrepro.host.command_line ARGUMENT...      one line on stderr and exit code 1 for the first mistake
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.errors import UserError, run_stage
from gemmrepro.host import config_files

CONFIG = Path("config/config.yaml")
_QUIET = ("all", "host", "progress", "reason", "rules")
_BEFORE = "put targets before the options, or after --"


def check(arguments: Sequence[str]) -> None:
    """Raises UserError for a configuration file that cannot be read, and for a target that an option takes."""
    if CONFIG.parent.is_dir():
        config_files.read(CONFIG)
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
            config_files.read(Path(word))
        elif option in ("--config", "-C") and "=" not in word:
            raise UserError(f"{option} takes {word!r} for a setting, which is key=value; {_BEFORE}.")
        elif option in ("--quiet", "-q") and word not in _QUIET:
            raise UserError(f"{option} takes {word!r} for one of {', '.join(_QUIET)}; {_BEFORE}.")


def main() -> None:
    check(sys.argv[1:])


if __name__ == "__main__":
    run_stage(main)
