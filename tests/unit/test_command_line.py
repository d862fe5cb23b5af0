"""The one command line: every stage that it lists can be started, with options that are declared once."""

import importlib
import re

import pytest

from gemmrepro import __main__ as command

OPTIONS = {stage: set(re.sub(r"[^\w-]+", " ", row[1]).split()) for stage, row in command.STAGES.items()}


@pytest.mark.parametrize("stage", command.STAGES)
def test_a_stage_has_what_it_runs_and_declared_options(stage: str) -> None:
    module, _, function = command.STAGES[stage][0].partition(":")
    assert callable(getattr(importlib.import_module(f"gemmrepro.{module}"), function or "main"))
    assert OPTIONS[stage] <= command.OPTIONS.keys() and stage in command.declared(module)


def test_no_option_is_declared_for_nothing() -> None:
    used = {name for stage in command.STAGES for option in OPTIONS[stage] for name in (option, f"{stage} {option}")}
    assert command.OPTIONS.keys() <= used


def test_what_is_required_and_what_excludes_another_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["build"], "the following arguments are required: --kernels, --toolkit, --out"),
        (["figures", "--measure", "m", "--out", "o"], "one of the arguments --family --verdicts is required"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command.run(words)
        assert said in capsys.readouterr().err
