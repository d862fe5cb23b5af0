"""The one command line: every stage that it lists can be started, with options that are declared once."""

from __future__ import annotations

import importlib

import pytest

from gemmrepro import __main__ as command
from gemmrepro.errors import UserError


def options_of(stage: str) -> set[str]:
    return set(command.STAGES[stage][1].translate(str.maketrans("|", " ", "![]")).split())


@pytest.mark.parametrize("stage", command.STAGES)
def test_a_stage_has_what_it_runs_and_declared_options(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, function = command.STAGES[stage][0].partition(":")
    assert callable(getattr(importlib.import_module(f"gemmrepro.{module}"), function or "main"))
    assert options_of(stage) <= command.OPTIONS.keys() and command.declared(module)
    with pytest.raises(SystemExit, match="0"):
        command.run([stage, "--help"])
    assert all(option in capsys.readouterr().out for option in list(options_of(stage))[:1])


def test_no_option_is_declared_for_nothing() -> None:
    used = {name for stage in command.STAGES for option in options_of(stage) for name in (option, f"{stage} {option}")}
    assert command.OPTIONS.keys() <= used


def test_what_is_required_and_what_excludes_another_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["build"], "the following arguments are required: --kernels, --toolkit, --out"),
        (["figures", "--measure", "m", "--out", "o"], "one of the arguments --family --verdicts is required"),
        (["gates", "--numeric", "a", "--recorded", "b"], "argument --recorded: not allowed with argument --numeric"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command.run(words)
        assert said in capsys.readouterr().err
    with pytest.raises(UserError, match="there is no stage 'reprot'; known are check,"):
        command.run(["reprot"])
