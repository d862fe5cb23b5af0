"""The page of GPUs side by side: a second GPU's recordings."""

import shutil
from dataclasses import replace

import pytest
from synthetic import World
from test_report import call

from gemmrepro.measure.rows import load
from gemmrepro.paper.claims import ClaimView, VerdictsView, read_verdicts
from gemmrepro.paper.gpus import Gpu, read_others, side_by_side
from gemmrepro.paper.regimes import Entry, RegimeLine
from gemmrepro.paper.text import View

FAMILIES = ("ladder", "ceilings")


def judged(world: World) -> World:
    """A synthetic GPU's rows with the verdicts on them, as the stages leave them."""
    world.write()
    inputs = ["--measure", world.measure, "--gates", world.gates, "--build", world.build]
    call("verdicts", *inputs, "--families", ",".join(FAMILIES), "--out", world.root / "verdicts.json")
    return world


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> View:
    """The synthetic GPU, and another whose level 7 is half as fast and which has no ceilings."""
    root = tmp_path_factory.mktemp("gpus")
    own = judged(World(root / "own", samples=False, sizes=(4096, 8192)))
    slow = {"ladder.warptile": 0.45}
    other = World(root / "others" / "b", samples=False, sizes=(4096,), gpu="Other GPU", ratios=slow, ceilings=False)
    judged(other)
    shutil.rmtree(other.gates)
    measured = {name: load(own.measure, name) for name in FAMILIES}
    verdicts_here = read_verdicts(own.root / "verdicts.json")
    others = read_others([root / "others/b"], FAMILIES)
    return side_by_side(Gpu(verdicts_here.gpu or "", measured, verdicts_here), others)


def test_each_gpu_has_its_own_verdicts_ratios_and_ceilings(two):
    assert two.names == ["Synthetic GPU", "Other GPU"]
    lines = {line.kernel.id: line for line in two.kernels}
    tiled = lines["ladder.warptile"]
    assert tiled.n == 4096, "the largest size that both have"
    own, other = tiled.on
    assert own and other and other.ratio == pytest.approx(0.5 * own.ratio, rel=0.02)
    assert own.share is not None and 0 < own.share < 1 and other.share is None
    by_claim = {line.claim.id: line for line in two.claims}
    ratio = by_claim["ladder.ratio.L7"]
    assert ratio.on[1] and ratio.on[1].judged[0].value == pytest.approx(other.ratio, rel=0.02)
    assert {line.claim.way for line in two.claims}.isdisjoint({"count", "consistent", "none"})


def test_a_kernel_that_was_timed_cold_alone_is_shown_so(tmp_path):
    own = judged(World(tmp_path, samples=False, sizes=(4096,)))
    measured = {name: load(own.measure, name) for name in FAMILIES}
    verdicts_here = read_verdicts(own.root / "verdicts.json")
    summary = measured["ladder"].summary
    cold = replace(measured["ladder"], summary=summary[summary["cache"] == "cold"])
    warm = Gpu("Warm", measured, verdicts_here)
    shown = {
        name: side_by_side(warm, [replace(warm, measured=measured | {"ladder": other})]).kernels
        for name, other in (("both", measured["ladder"]), ("cold", cold))
    }
    assert {line.cache for line in shown["both"]} == {"warm"} and {line.cache for line in shown["cold"]} == {"cold"}
    assert all(all(line.on) for lines in shown.values() for line in lines), "in that state of the cache both have rows"


def test_a_leaderboard_ranks_what_ran_sustained_by_type_and_size_with_its_library():
    slow, fast = (Entry(name, name, f"row-{name}", ratio, ratio, ratio) for name, ratio in (("s", 0.9), ("f", 2.0)))
    counted, even = replace(slow, library_joules=3.0), replace(slow, kernel="e", ratio=1.0)
    lines = [
        RegimeLine("x", "fp16", "fp32", "b", True, 4096, {"in_turn": (), "sustained": (even,), "burst": (slow,)}),
        RegimeLine("y", "fp16", "fp16", "b", True, 4096, {"in_turn": (), "sustained": (fast, slow), "burst": ()}),
        RegimeLine("x", "fp32", "fp32", "a", True, 8192, {"in_turn": (), "sustained": (counted, fast), "burst": ()}),
        RegimeLine("x", "fp32", "fp32", "a", True, 4096, {"in_turn": (fast,), "sustained": (), "burst": ()}),
    ]
    first, last = Gpu("", {}, VerdictsView((), "", "live", {}), lines).boards
    assert [(first.dtype, first.n), (last.dtype, last.n)] == [("fp32", 8192), ("fp16", 4096)]
    assert [entry for entry, _ in first.entries] == [fast, counted] and first.tied == set()
    assert [(entry.library_joules, line.library) for entry, line in first.libraries] == [(3.0, "a")]
    assert [entry for entry, _ in last.entries] == [fast, even, slow] and last.tied == {"e", "b, C in FP32"}
    assert sorted(line.library for _, line in last.libraries) == ["b", "b, C in FP32"], "two libraries, one name"


def test_what_one_gpu_did_not_measure_is_no_difference(two):
    [line] = [line for line in two.claims if line.claim.id == "ladder.ratio.L7"]
    here = line.on[0]

    def differs(verdict: str) -> bool:
        claims = here, ClaimView(**vars(here) | {"verdict": verdict})
        mine, other = (Gpu("", {}, VerdictsView((claim,), "", "live", {})) for claim in claims)
        return side_by_side(mine, [other]).claims[0].differs

    assert not differs(here.verdict) and not differs("not measured") and differs("undecided")
