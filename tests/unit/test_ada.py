"""The family ada: what its records say of its sources, what its permutation promises, and its share of the ceiling."""

from types import SimpleNamespace

import pytest
from synthetic import CEILINGS, World

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.judge import judging, rules
from gemmrepro.judge.calculation import Calculated, Inputs, calculation
from gemmrepro.registry.articles import chip_of


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The judged claims on a made-up sweep."""
    made = World(tmp_path_factory.mktemp("judged"), families=("ada", "ceilings"), sizes=(4096,)).write()
    result = judging.judge_all(made.measure, made.gates, made.build, ("ada",))
    return {entry["id"]: entry for entry in result["claims"]}


def test_throughput_is_judged_as_a_share_of_what_mma_sync_reaches_here(entries):
    throughput, share = (entries[f"ada.{name}.3_1"]["measured"][0] for name in ("throughput", "peak"))
    ceiling = CEILINGS["ceilings.mma_f16"][1]
    assert share["value"] == pytest.approx(throughput["value"] / ceiling)
    assert share["ci_low"] == pytest.approx(throughput["ci_low"] / ceiling) and share["unit"] == "ratio"
    assert share["label"].endswith("of 600 TFLOP/s") and len(share["from"]) == 2
    held = abs(share["value"] / (153.6 / 165.2) - 1) < 0.1
    assert (entries["ada.throughput.3_1"]["verdict"] == rules.REPRODUCED) == held


def test_what_says_the_same_in_other_units_is_covered(entries):
    for name in ("time.3_1", "peak.3_1", "time.final", "throughput.final", "peak.final", "ratio.final"):
        assert entries[f"ada.{name}"]["verdict"] == rules.COVERED, name
    assert entries["ada.step.1_1"]["published"][0]["value"] == 57.3
    assert "published 1.949" in entries["ada.step.1_1"]["explanation"].lower()


def test_the_authors_table_is_consistent(entries):
    table = {name: entry["verdict"] for name, entry in entries.items() if name.startswith("ada.table.")}
    assert len(table) == 18 and set(table.values()) == {rules.CONSISTENT}


def inputs(*names: str, codes: list[dict[str, int]], **options) -> Inputs:
    """Inputs of a calculation with machine code of these opcodes."""
    made = tuple(SimpleNamespace(instructions=opcodes) for opcodes in codes)
    kernels = tuple(registry.kernel(f"ada.{name}") for name in names)
    return Inputs(kernels, made, "sm_89", "cuda13", 4096, chip=chip_of("ada", "RTX 4090"), options=options)


def calculate(function: str, given: Inputs) -> Calculated:
    return calculation("ada", function)(given)


def test_the_floor_of_the_last_kernel_is_its_mma():
    code = {"HMMA.16816.F32": 64, "BAR.SYNC.DEFER_BLOCKING": 2}
    found = calculate("share_of_floor", inputs("packed_4x", codes=[code], microseconds=895))
    assert (
        found.value == pytest.approx(0.93, abs=0.0005) and "832 µs" in found.working and "32.0 cycles" in found.working
    )


def test_code_that_makes_an_mma_twice_or_not_at_all_is_refused():
    for wrong in (33, 31, 0):
        with pytest.raises(UserError, match="no multiple of 32"):
            calculate("share_of_floor", inputs("packed_4x", codes=[{"HMMA.16816.F32": wrong}], microseconds=895))


def test_larger_tiles_need_a_quarter_of_the_barriers():
    large, small = {"HMMA.16816.F32": 32, "BAR.SYNC": 1}, {"HMMA.16816.F32": 24, "BAR.SYNC": 3}
    assert calculate("fewer_barriers", inputs("packed_4x", "packed_async", codes=[large, small])).value == 4
    twice = {**large, "BAR.SYNC": 2}
    assert calculate("fewer_barriers", inputs("packed_4x", "packed_async", codes=[twice, small])).value == 2
