"""What `nix run` makes of its arguments. Without Nix: a program stands for Snakemake, whose parser reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from snakemake.cli import get_argument_parser
from support import ROOT

START = ROOT / "nix/gemmrepro.sh"


def started(folder: Path, *arguments: str) -> list[str]:
    """The arguments that Snakemake gets."""
    (folder / "Snakefile").touch()
    program = folder / "snakemake"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    command = ["sh", str(START), str(program), *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "config", "targets"),
    [
        ([], {"measure=recorded"}, set()),
        (["gates"], {"measure=recorded"}, {"gates"}),
        (["--config", "families=[ada]"], {"measure=recorded", "families=[ada]"}, set()),
        (["-C", "families=[ada, crt]", "--", "gates"], {"measure=recorded", "families=[ada, crt]"}, {"gates"}),
        (["--config=families=[ada]", "gates"], {"measure=recorded", "families=[ada]"}, {"gates"}),
        (["--config", "a=1", "measure=auto"], {"a=1", "measure=auto"}, set()),
        (["--config=measure=live"], {"measure=live"}, set()),
        (["--configfile", "config/full.yaml", "--", "gates"], {"measure=recorded"}, {"gates"}),
    ],
)
def test_measurements_are_the_recorded_ones_unless_the_user_sets_measure(
    arguments: list[str], config: set[str], targets: set[str], tmp_path: Path
) -> None:
    read = get_argument_parser().parse_args(started(tmp_path, *arguments))
    assert set(read.config) == config
    assert set(read.targets) == targets
    assert read.cores == 1


@pytest.mark.parametrize("own", [["--cores", "2"], ["--cores=2"], ["-c2"], ["-c", "2"], ["--help"]])
def test_the_users_number_of_cores_stays_and_help_is_snakemakes_own(own: list[str], tmp_path: Path) -> None:
    got = started(tmp_path, *own)
    assert got == own if own == ["--help"] else get_argument_parser().parse_args(got).cores == 2


def test_elsewhere_than_in_a_checkout_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(["sh", START, "false"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "gemmrepro: this is no checkout of gemmrepro; git clone it and start nix run there.\n"
