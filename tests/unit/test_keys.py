"""Run keys, and the declared parts of a record that rules rerun for."""

from dataclasses import replace

import pytest

from gemmrepro import registry
from gemmrepro.gates.operations import gate_key
from gemmrepro.operations import Shape
from gemmrepro.registry import Launch, card, keys

SHAPE = Shape.cube(4096)
WARPTILE = registry.kernel("ladder.warptile")
ONE = (1, 1, 1)
PROMISES = ({"error_copies": 3}, {"expects": ()}, {"error": replace}, {"error": registry.kernel})


def test_another_way_of_timing_moves_rows_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    row, verdict = keys.run_key(WARPTILE, "build", SHAPE), gate_key(WARPTILE, "build")
    monkeypatch.setattr(keys, "TIMING_METHOD", 2)
    assert keys.run_key(WARPTILE, "build", SHAPE) != row and gate_key(WARPTILE, "build") == verdict


def test_what_a_gate_reads_changes_what_is_judged_and_words_do_not() -> None:
    words = [replace(WARPTILE, rung="L7z"), replace(WARPTILE, story=replace(WARPTILE.story, idea="Another."))]
    assert {keys.judged(kernel) for kernel in words} == {keys.judged(WARPTILE)}
    promises = [WARPTILE.with_promises(**each) for each in PROMISES]
    promises += [WARPTILE.with_accepts(multiple_of={"m": 2}), replace(WARPTILE, launch=lambda _: Launch(ONE, ONE))]
    assert len({keys.judged(kernel) for kernel in (WARPTILE, *promises)}) == 7


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
