"""How rungs relate: what a gain is measured against, and that an inserted rung moves no neighbour."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.registry import ladders

BEFORE_SMEM = '    Kernel(\n        id="ladder.smem",'

INSERTED = """    Kernel(
        id="ladder.planted_rung",
        rung="L2.1",
        title="A planted rung",
        source="2.1_planted_rung.cu",
        code=Code("planted_rung", params={"bm": 32, "bn": 32}),
        launch=_tiled(32, 32, 1024),
        promises=Promises(expects=(Expect(_FFMA, "eight K iterations are unrolled", least=8),)),
        timing=_SGEMM,
        story=Story(idea="Eight K iterations at a time.", evidence=(_ALL, _ISSUED)),
    ),
"""


@pytest.fixture
def with_inserted_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder with a rung of our own between the article's levels 2 and 3."""
    shutil.copytree(paths.KERNELS_DIR / "ladder", tmp_path / "ladder")
    path = tmp_path / "ladder" / "family.py"
    text = path.read_text()
    assert text.count(BEFORE_SMEM) == 1
    path.write_text(text.replace(BEFORE_SMEM, INSERTED + BEFORE_SMEM))
    source = tmp_path / "ladder" / "2_coalesced.cu"
    source.with_name("2.1_planted_rung.cu").write_text(source.read_text().replace("coalesced(", "planted_rung("))
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)


def compared_with() -> dict[str, str | None]:
    pairs = [(kernel.id, ladders.before(kernel)) for kernel in registry.kernels("ladder")]
    return {kernel_id: other.id if other else None for kernel_id, other in pairs}


def test_an_inserted_rung_moves_no_comparison_of_its_neighbours(request: pytest.FixtureRequest) -> None:
    as_it_was = compared_with()
    request.getfixturevalue("with_inserted_rung")
    assert compared_with() == as_it_was | {"ladder.planted_rung": "ladder.coalesced"}


@pytest.mark.parametrize(
    ("kernel_id", "other"),
    [
        ("ladder.naive", None),  # the first GEMM
        ("ladder.smem", "ladder.coalesced"),  # the article's previous rung
        ("ladder.async_copy", "ladder.warptile"),  # past the article: the rung right before
        ("ladder.smem_tuned", "ladder.smem"),  # tuned: the first kernel of its source
        ("cute.hopper", "cute.three_stages"),  # what the record names
        ("hopper.stream_k_fp16", "hopper.lockstep_fp16"),  # of its own type
        ("hopper.by_size_fp16", None),  # whose ladder leaves out the rung before
        ("memory.reduce_wide", None),  # no GEMM
    ],
)
def test_what_a_gain_is_measured_against(kernel_id: str, other: str | None) -> None:
    before = ladders.before(registry.kernel(kernel_id))
    assert (before.id if before else None) == other
