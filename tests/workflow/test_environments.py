"""Each environment of environments.py plans the default run, or is refused in one line."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest
from environments import CASES, FULL, PLAN, Case, tried
from support import ROOT

LEFT_OUT = ("an ordinary clone", "a path with blanks", "no network, no images yet")
"""Other tests try the first, another path has blanks as well, and the last needs a builder of images."""


@pytest.mark.parametrize("case", [one for one in CASES if one.name not in LEFT_OUT], ids=lambda case: case.name)
def test_an_environment_is_as_expected(case: Case) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this checkout is no clone, and the cases are copies of what is committed")
    if case.user and os.geteuid():
        pytest.skip("only root can become another user")
    if case.read_only and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mounts of its own are not permitted here")
    outcome = tried(replace(case, command=PLAN) if case.command == FULL else case)
    assert outcome.held, outcome.said[-2000:]
