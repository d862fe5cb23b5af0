"""Which binaries a sweep may time: what was not built for its own GPU is left out, with the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.measure import prepare

SESSION = SimpleNamespace(gpu=SimpleNamespace(arch="sm_90"))
WGMMA = registry.kernel("hopper.wgmma")


def test_a_kernel_of_one_architecture_that_was_not_built_is_left_out(tmp_path: Path) -> None:
    """wgmma is of sm_90a alone: where the configuration does not compile for it there is nothing to load."""
    assert WGMMA.platform.targets == ("90a",)
    for folder in (tmp_path, tmp_path / "others"):
        found = prepare.load_binaries(SESSION, {WGMMA.id: WGMMA}, ("cuda13",), folder, tmp_path)
        assert not found.loaded
        assert found.refused == {(WGMMA.id, "cuda13"): "it is written for sm_90a alone, and was not built"}
        write_build(tmp_path / "others", "ladder.naive", "cuda13", "aaaa")


def test_only_toolkits_of_a_kernel_are_asked_for(tmp_path: Path) -> None:
    found = prepare.load_binaries(SESSION, {WGMMA.id: WGMMA}, ("cuda11",), tmp_path, tmp_path)
    assert found == prepare.Binaries({}, {})


def test_a_timed_kernel_is_asked_for_by_its_id() -> None:
    assert list(prepare.timed_kernels("ladder", "ladder.smem,ladder.naive")) == ["ladder.smem", "ladder.naive"]
    with pytest.raises(UserError, match=r"ladder has no timed kernel ladder\.tea; it has ladder\.naive"):
        prepare.timed_kernels("ladder", "ladder.tea")
