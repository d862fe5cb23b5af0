"""The regimes on a synthetic GPU: what steady and rested mean, energy, the order of blocks, and rows from samples."""

import dataclasses
import statistics

import pytest
from synthetic_gpu import CAP, HIGHEST, IDLE_W, SyntheticGpu

from gemmrepro.measure import derived, passes, regimes
from gemmrepro.measure.passes import Pair, Set
from gemmrepro.measure.plan import Point
from gemmrepro.measure.regimes import Block, Chunk, Load, Reading
from gemmrepro.operations import Problem, Shape


def load(launch_us=200.0, launches=1):
    return Load(lambda: None, launches, launch_us)


CAPPED = HIGHEST * (CAP / 900.0) ** (1 / 3)
"""The clock at which a load of 900 W at the highest clock draws the cap."""


def test_a_sustained_block_is_timed_at_the_clock_that_the_power_cap_leaves():
    gpu = SyntheticGpu()
    assert regimes.heat(gpu, load())
    block = regimes.sustained(gpu, load(), seconds=0.5)
    assert block.ready and block.waited_s >= regimes.STEADY_LEAST
    times = [chunk.time_us for chunk in block.chunks]
    assert statistics.median(times) == pytest.approx(200.0 * HIGHEST / CAPPED, rel=2e-3)
    assert statistics.median(reading.clock_mhz for reading in block.readings) == pytest.approx(CAPPED, rel=2e-3)
    assert sum(chunk.launches * chunk.time_us for chunk in block.chunks) >= 0.45e6


def test_a_burst_begins_at_the_highest_clock_and_is_over_before_the_cap_holds():
    gpu = SyntheticGpu()
    regimes.heat(gpu, load())
    block = regimes.burst(gpu, load())
    assert block.ready and len(block.chunks) == regimes.BURST_SAMPLES
    assert statistics.median(chunk.time_us for chunk in block.chunks) == pytest.approx(200.0, rel=5e-3)
    # one call before the pause, so that code is loaded, and the samples
    assert block.waited_s >= regimes.REST_LEAST


def test_a_gpu_that_never_cools_down_is_not_called_rested():
    gpu = SyntheticGpu(cooling=20.0)
    gpu.temperature = 200.0
    block = regimes.burst(gpu, load())
    assert not block.ready and block.waited_s >= regimes.REST_MOST


def test_a_kernel_that_keeps_drifting_is_timed_and_marked():
    block = regimes.sustained(SyntheticGpu(drift=0.5), load(), seconds=0.3)
    assert not block.ready and block.waited_s >= regimes.STEADY_MOST and block.chunks


def test_a_long_launch_is_timed_in_chunks_of_one():
    block = regimes.sustained(SyntheticGpu(), load(launch_us=400_000.0), seconds=0.3)
    assert [chunk.launches for chunk in block.chunks] == [1] * regimes.LEAST_CHUNKS


def test_a_block_whose_calls_end_before_they_are_looked_at_has_a_reading(monkeypatch):
    gpu = SyntheticGpu()
    monkeypatch.setattr(gpu, "finished", lambda handle: bool(gpu.chunk(handle)))
    block = regimes.sustained(gpu, load(), seconds=0.1)
    assert len(block.chunks) >= regimes.LEAST_CHUNKS and len(block.readings) == 1


def test_a_graph_of_many_launches_counts_each_of_them():
    block = regimes.burst(SyntheticGpu(), load(launch_us=5.0, launches=200))
    assert {chunk.launches for chunk in block.chunks} == {200}
    assert block.chunks[0].time_us == pytest.approx(5.0, rel=2e-2)


def test_the_energy_of_a_launch_is_its_power_times_its_time_whatever_the_counter_steps_by():
    for counter in (0.02, 0.1):
        gpu = SyntheticGpu(counter=counter)
        regimes.heat(gpu, load())
        block = regimes.sustained(gpu, load(), seconds=1.0)
        taken = derived.Taken(block.ready, [chunk.time_us for chunk in block.chunks], block.readings)
        assert derived.counted_power(taken.readings) == pytest.approx(CAP, rel=0.01)
        assert derived.joules([taken]) == pytest.approx(CAP * 200e-6 * HIGHEST / CAPPED, rel=0.01)


def test_without_enough_steps_of_the_counter_there_is_no_energy():
    for counter in (None, 10.0):
        gpu = SyntheticGpu(counter=counter)
        block = regimes.sustained(gpu, load(), seconds=0.5)
        assert derived.counted_power(block.readings) is None


def test_a_burst_has_no_joules():
    gpu = SyntheticGpu(counter=0.02)
    block = regimes.burst(gpu, load(launch_us=50_000.0))
    taken = derived.Taken(block.ready, [chunk.time_us for chunk in block.chunks], block.readings)
    assert derived.counted_power(block.readings) is not None
    assert derived.regime_cells(regimes.BURST, [taken], None)["joules"] is None
    assert derived.regime_cells(regimes.SUSTAINED, [taken], None)["joules"] is not None


def readings(count, step=0.1, **sensors):
    return [Reading(step * index, **{name: of(index) for name, of in sensors.items()}) for index in range(count)]


def test_hot_means_that_the_temperature_hardly_rises():
    assert regimes.is_hot(readings(2))  # without a sensor nothing can be waited for
    assert not regimes.is_hot(readings(20, temp_c=lambda index: 50.0))  # not long enough
    assert regimes.is_hot(readings(40, temp_c=lambda index: 50.0))
    assert not regimes.is_hot(readings(40, temp_c=lambda index: 50.0 + index))
    assert regimes.is_hot(readings(40, temp_c=lambda index: 50.0 - index))


def test_rested_means_idle_long_enough_unlimited_and_hardly_cooling():
    cool = {"temp_c": lambda index: 40.0}
    assert not regimes.is_rested(readings(5, **cool))
    assert regimes.is_rested(readings(20, **cool))
    assert regimes.is_rested(readings(20, **cool, throttle=lambda index: regimes.IDLE))
    assert not regimes.is_rested(readings(20, **cool, throttle=lambda index: 0x4))
    assert not regimes.is_rested(readings(20, temp_c=lambda index: 60.0 - index))


@pytest.mark.parametrize(
    ("name", "values", "steady"),
    [
        ("time", [100.0] * 10, True),
        ("time", [100.0] * 7 + [101.0] * 3, False),
        ("clock_mhz", [1500.0] * 10, True),
        ("clock_mhz", [1500.0] * 7 + [1450.0] * 3, False),
        ("power_w", [690.0, 710.0] * 5, True),
        ("power_w", [600.0] * 7 + [700.0] * 3, False),
    ],
)
def test_steady_means_that_neither_time_nor_clock_nor_power_drifts(name, values, steady):
    chunks = [Chunk(0.06 * index, 1, values[index] if name == "time" else 100.0) for index in range(10)]
    sensed = [Reading(0.06 * index, **({} if name == "time" else {name: values[index]})) for index in range(10)]
    assert regimes.is_steady(chunks, sensed) is steady
    assert not regimes.is_steady(chunks[:5], sensed[:5])  # before STEADY_LEAST


def test_a_ratio_compares_the_blocks_of_one_pass():
    own = [derived.Taken(True, [100.0, 101.0, 99.0], []), derived.Taken(False, [200.0, 202.0, 198.0], [])]
    other = [derived.Taken(True, [90.0], []), derived.Taken(True, [180.0], [])]
    cells = derived.regime_cells(regimes.SUSTAINED, own, other)
    assert cells["ratio"] == cells["ratio_ci_low"] == cells["ratio_ci_high"] == pytest.approx(0.9)
    assert cells["median_us"] == 150.0 and cells["rounds"] == 2 and cells["ready"] == 1
    assert cells["baseline_median_us"] == 135.0
    alone = derived.regime_cells(regimes.SUSTAINED, own, None)
    assert alone["ratio"] is None and alone["median_us"] == 150.0


def test_idle_power_is_what_the_synthetic_gpu_draws_at_rest():
    gpu = SyntheticGpu(counter=0.02)
    seen = [gpu.read()]
    while gpu.now() < 2:
        gpu.sleep(0.01)
        seen.append(gpu.read())
    assert derived.counted_power(seen) == pytest.approx(IDLE_W, rel=0.01)
    assert dataclasses.asdict(seen[0])["clock_mhz"] == HIGHEST


@pytest.mark.parametrize(
    ("regime", "ready", "says"),
    [
        ("sustained", True, "steady"),
        ("sustained", False, "not steady"),
        ("burst", True, "rested"),
        ("burst", False, "warm"),
    ],
)
def test_a_visit_is_told_by_the_words_of_its_regime(regime, ready, says):
    problem, shape = Problem("gemm", "fp16", "fp32", "row,col,row"), Shape.cube(4096)
    point = Point("hopper.by_size", "cuda13", problem, shape, "warm", "cublas.gemm")
    block = Block(ready, 1.5, [Chunk(0.0, 10, 99.0), Chunk(0.1, 10, 101.0)], [])
    told = passes._told(Pair(0, regime, Set(problem, shape, (point,))), passes.Visit(0, block), 4.0)
    assert f" {says} after 1.5 s, 4.0 s in all" in told and "hopper.by_size cuda13" in told and ": 100.00 µs" in told
