"""What cuTile compiles just in time does what the build stage's binaries do."""

from __future__ import annotations

import pytest
from gpu_tools import runs

from gemmrepro import just_in_time, registry

pytestmark = pytest.mark.gpu


def test_both_ways_write_the_same_bits(session, built, monkeypatch):
    if reason := just_in_time.unable():
        pytest.skip(reason)
    monkeypatch.chdir(just_in_time.ROOT)
    kernels = [kernel for kernel in registry.kernels("cutile") if runs(kernel, session)]
    verdicts = just_in_time.check_all(kernels, built)
    assert not {name: verdict["reason"] for name, verdict in verdicts.items() if verdict["status"] == "failed"}
    assert sum(verdict["status"] == "passed" for verdict in verdicts.values()) >= 10
