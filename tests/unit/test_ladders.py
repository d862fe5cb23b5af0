"""How rungs relate, what a gain is measured against, and what was expected; an inserted rung moves no neighbour."""

import re
from dataclasses import replace

import pytest

from gemmrepro import registry
from gemmrepro.paper.kernel import prediction
from gemmrepro.registry import families, ladders


def insert(before: registry.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a rung of our own to its family, right before a kernel."""
    kernels = [each for each in registry.kernels(before.family) if each.id != f"{before.family}.planted"]
    story = replace(before.story, article=None, published_system=None)
    planted = replace(before, id=f"{before.family}.planted", source="planted.cu", story=story)
    kernels.insert(kernels.index(before), planted)
    monkeypatch.setattr(families.family_module(before.family), "KERNELS", tuple(kernels))


@pytest.mark.parametrize("family", [name for name in registry.family_names() if ladders.compared(name)])
def test_a_rung_inserted_anywhere_moves_no_comparison_until_it_is_measured(family, monkeypatch):
    kernels = registry.kernels(family)
    measured = {kernel.id for kernel in kernels}
    as_it_was = [ladders.before(kernel, measured) for kernel in kernels]
    assert as_it_was == [ladders.before(kernel) for kernel in kernels]
    for after in kernels:
        insert(after, monkeypatch)
        assert [ladders.before(kernel, measured) for kernel in kernels] == as_it_was, after.id


def test_a_measured_rung_is_compared_with_the_next_one_past_the_article(monkeypatch: pytest.MonkeyPatch) -> None:
    for after, moved in (("hopper.multicast", True), ("ladder.smem", False)):
        kernel = registry.kernel(after)
        insert(kernel, monkeypatch)
        before = ladders.before(kernel, {each.id for each in registry.kernels(kernel.family)})
        assert (before.id == f"{kernel.family}.planted") is moved


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


CUDA = """// Expected:   half of the loads,
//             1.5 times as fast.
// Takes:      any size.

// Expected:   not this one.
"""


def test_the_paragraph_ends_with_the_next_label():
    assert prediction(CUDA) == "half of the loads, 1.5 times as fast."
    assert prediction("// Level L1.\n\n__global__ void f() {}\n") == ""


def test_every_rung_that_is_told_has_one_which_names_no_rung_by_the_number_of_its_file():
    for family in registry.family_names():
        levels = {kernel.rung.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for kernel in registry.kernels(family)}
        for kernel in registry.kernels(family):
            expected = kernel.story.expected or prediction(kernel.source_path.read_text())
            assert expected or not kernel.story.evidence, kernel.id
            said = re.findall(r"(?:than|over) (\d\.\d)\b|\b(\d\.\d)'s", expected)
            assert {one or other for one, other in said} <= levels, kernel.id
