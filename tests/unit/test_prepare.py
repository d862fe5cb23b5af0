"""Which binaries a sweep may time: what was not built for its own GPU is left out, with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import CODE, write_build

from gemmrepro import registry
from gemmrepro.core.architectures import COMPILED
from gemmrepro.errors import UserError
from gemmrepro.measure import prepare

WGMMA = registry.kernel("hopper.wgmma")
NAIVE = registry.kernel("ladder.naive")


def session(*capability: int) -> SimpleNamespace:
    """A session on a GPU of this compute capability, with a driver for CUDA 13."""
    name, driver = "A GPU", {"driver": "580.1", "driver_cuda": (13, 0)}
    arch = "sm_{}{}".format(*capability)
    return SimpleNamespace(gpu=SimpleNamespace(name=name, compute_capability=capability, arch=arch, **driver))


@pytest.mark.parametrize(
    ("kernel", "capability", "toolkit", "reason"),
    [
        (WGMMA, (8, 9), "cuda13", "needs Hopper (sm_90a)"),
        (WGMMA, (9, 0), "cuda13", "it was not built: build.cuda13 in the configuration lists none of its targets"),
        (NAIVE, (7, 5), "cuda13", "needs compute capability 8.0"),
        (NAIVE, (10, 0), "cuda12", "not compiled for sm_100: cuda12 does not know it"),
        (NAIVE, (10, 3), "cuda13", "add 103 to build.cuda13"),
    ],
)
def test_a_kernel_is_left_out_for_its_true_reason_before_its_gate_is_asked(
    tmp_path: Path, kernel: registry.Kernel, capability: tuple[int, int], toolkit: str, reason: str
) -> None:
    """No gate was run at all here. An advice is one that the configuration takes."""
    if kernel is NAIVE:
        write_build(tmp_path, kernel.id, toolkit, "aaaa", {"sm_80": CODE})
    found = prepare.load_binaries(session(*capability), {kernel.id: kernel}, (toolkit,), tmp_path, tmp_path)
    assert not found.loaded and list(found.refused) == [(kernel.id, toolkit)]
    assert reason in found.refused[kernel.id, toolkit]
    for number, name in re.findall(r"add (\d+) to build\.(\w+)", found.refused[kernel.id, toolkit]):
        assert int(number) in COMPILED[name]


def test_only_toolkits_of_a_kernel_are_asked_for(tmp_path: Path) -> None:
    found = prepare.load_binaries(session(9, 0), {WGMMA.id: WGMMA}, ("cuda11",), tmp_path, tmp_path)
    assert found == prepare.Binaries({}, {})


def test_a_timed_kernel_is_asked_for_by_its_id() -> None:
    assert list(prepare.timed_kernels("ladder", "ladder.smem,ladder.naive")) == ["ladder.smem", "ladder.naive"]
    with pytest.raises(UserError, match=r"ladder has no timed kernel ladder\.tea; it has ladder\.naive"):
        prepare.timed_kernels("ladder", "ladder.tea")
