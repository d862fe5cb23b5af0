"""The library's commands: ``python -m gemmrepro COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from gemmrepro.check import stage as check
from gemmrepro.errors import UserError, run_stage
from gemmrepro.host import finished_run
from gemmrepro.judge import article
from gemmrepro.recordings import accept, compare

COMMANDS: Mapping[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "check": (check.main, "judge kernel families against the contract, without a GPU"),
    "article": (article.main, "make, check or judge the folder of an article, without a GPU"),
    "compare": (compare.main, "compare two runs row by row: SAME, FASTER, SLOWER or UNCLEAR"),
    "bundle": (finished_run.main, "pack what a live run measured into one file, to send or to accept"),
    "accept": (accept.main, "check a bundle of recordings and file it under reports/recorded"),
}


def main() -> int:
    """Run the command that the first argument names."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print("usage: python -m gemmrepro COMMAND [arguments]\n")
        for command, (_, meaning) in COMMANDS.items():
            print(f"  {command:8} {meaning}")
        return 0
    if name not in COMMANDS:
        raise UserError(f"there is no command '{name}'; known are {', '.join(COMMANDS)}.")
    return COMMANDS[name][0](arguments)


if __name__ == "__main__":
    run_stage(main)
