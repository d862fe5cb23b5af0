"""Run keys, and the declared parts of a record that rules rerun for."""

import functools
from dataclasses import replace

import pytest

from gemmrepro import registry
from gemmrepro.gates.operations import gate_key
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch, card, keys
from gemmrepro.registry.keys import described

SHAPE = Shape.cube(4096)
WARPTILE = registry.kernel("ladder.warptile")


def single_block(shape: Shape) -> Launch:
    return Launch((1, 1, 1), (128, 1, 1))


def single_block_at_4096(shape: Shape) -> Launch:
    return single_block(shape) if shape == SHAPE else WARPTILE.launch(shape)


def test_a_run_key_holds_the_binary_the_shape_and_the_launch() -> None:
    key = keys.run_key(WARPTILE, "build", SHAPE)
    assert key == keys.run_key(WARPTILE, "build", SHAPE)
    assert key != keys.run_key(WARPTILE, "other", SHAPE)
    assert key != keys.run_key(WARPTILE, "build", Shape.cube(2048))
    early = replace(WARPTILE, launch=lambda shape: replace(WARPTILE.launch(shape), early=True))
    for other in (early, WARPTILE.with_accepts(max_elements=1)):
        assert key != keys.run_key(other, "build", SHAPE)
    at_4096 = replace(WARPTILE, launch=single_block_at_4096)
    assert keys.run_key(at_4096, "build", SHAPE) != key
    smaller = Shape.cube(2048)
    assert keys.run_key(at_4096, "build", smaller) == keys.run_key(WARPTILE, "build", smaller)


def test_another_way_of_timing_moves_rows_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    row, verdict = keys.run_key(WARPTILE, "build", SHAPE), gate_key(WARPTILE, "build")
    monkeypatch.setattr(keys, "TIMING_METHOD", 2)
    assert keys.run_key(WARPTILE, "build", SHAPE) != row and gate_key(WARPTILE, "build") == verdict


def test_a_run_is_of_the_card_at_hand() -> None:
    """Where the grid depends on its SMs, or the form on its watts; rules rerun for either."""
    energy = registry.kernel("hopper.by_energy")
    found: list[set[str]] = [set(), set(), set()]
    for at_hand in (card.REFERENCE, card.ANOTHER, card.Card(132, 350.0)):
        with card.of(at_hand):
            for kernel, runs in zip((WARPTILE, registry.kernel("hopper.persistent"), energy), found, strict=True):
                runs.add(keys.run_key(kernel, "build"))
    assert [len(runs) for runs in found] == [1, 2, 3]
    assert card.sms() == 132


def test_words_reach_no_gate_and_launch_shapes_no_compiler() -> None:
    retold = replace(WARPTILE, story=replace(WARPTILE.story, idea="Another sentence."))
    assert keys.judged(retold) == keys.judged(WARPTILE)
    assert keys.judged(replace(WARPTILE, rung="L7z", title="Another title")) == keys.judged(WARPTILE)
    assert keys.compiled(replace(WARPTILE, launch=single_block)) == keys.compiled(WARPTILE)
    assert keys.compiled(WARPTILE.with_code(defines={"N": "1"})) != keys.compiled(WARPTILE)


@pytest.mark.parametrize(
    "changed",
    [
        WARPTILE.with_promises(error_copies=3),
        WARPTILE.with_promises(expects=()),
        WARPTILE.with_accepts(multiple_of={"m": 2}),
        replace(WARPTILE, compute=replace(WARPTILE.compute, dtype_acc="fp16")),
        replace(WARPTILE, launch=single_block),
    ],
    ids=["error_copies", "expects", "multiple_of", "dtype_acc", "launch"],
)
def test_what_a_gate_reads_changes_what_is_judged(changed: Kernel) -> None:
    assert keys.judged(changed) != keys.judged(WARPTILE)


FACTOR = 2.0


def _helper(x: float) -> float:
    return FACTOR * x


def bound(a: float, b: float) -> float:
    return _helper(a) + b


@functools.cache
def cached_bound(a: float, b: float) -> float:
    return _helper(a) + b


def bound_with(factor: float):
    return lambda a, b: factor * _helper(a) + b


class TestDescribed:
    """A function that this file defines stands for one of a family: both are the project's own."""

    @pytest.fixture(autouse=True)
    def tests_are_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pathlib import Path

        from gemmrepro.core import paths
        from gemmrepro.registry import keys

        monkeypatch.setattr(paths, "KERNELS_DIR", Path(__file__).parent)
        keys._own_file.cache_clear()

    def test_constants_and_helpers_that_it_reaches_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [described(bound), described(cached_bound), described(bound_with(1.0))]
        monkeypatch.setitem(globals(), "FACTOR", 1e9)
        texts += [described(bound), described(cached_bound), described(bound_with(1.0))]
        monkeypatch.setitem(globals(), "_helper", abs)
        texts.append(described(bound))
        assert len(set(texts)) == 7

    def test_captured_values_and_arguments_of_a_partial_count_and_other_packages_by_name(self) -> None:
        assert described(bound_with(1.0)) == described(bound_with(1.0)) != described(bound_with(1e9))
        assert described(functools.partial(bound, 1.0)) != described(functools.partial(bound, 2.0))
        import json

        assert described(json.dumps) == repr(("json.dumps", []))
