"""The regimes on a synthetic GPU: what steady and rested mean, energy, the order of blocks, and rows from samples."""

import statistics
from dataclasses import replace

import numpy as np
import pytest
from synthetic_gpu import CAP, HIGHEST, SyntheticGpu

from gemmrepro.measure import regimes, rows
from gemmrepro.measure.regimes import Chunk, Load, Reading


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


def test_a_gpu_that_never_cools_down_and_a_kernel_that_keeps_drifting_are_timed_and_marked():
    gpu = SyntheticGpu(cooling=20.0)
    gpu.temperature = 200.0
    block = regimes.burst(gpu, load())
    assert not block.ready and block.waited_s >= regimes.REST_MOST
    block = regimes.sustained(SyntheticGpu(drift=0.5), load(), seconds=0.3)
    assert not block.ready and block.waited_s >= regimes.STEADY_MOST and block.chunks


def test_the_energy_of_a_launch_is_its_power_times_its_time_whatever_the_counter_steps_by():
    for counter in (0.02, 0.1):
        gpu = SyntheticGpu(counter=counter)
        regimes.heat(gpu, load())
        block = regimes.sustained(gpu, load(), seconds=1.0)
        taken = rows.Taken(block.ready, [chunk.time_us for chunk in block.chunks], block.readings)
        assert rows.counted_power(taken.readings) == pytest.approx(CAP, rel=0.01)
        assert rows.joules([taken]) == pytest.approx(CAP * 200e-6 * HIGHEST / CAPPED, rel=0.01)


def readings(seconds: float, temperature=lambda t: 50.0, every: float = 0.1, **sensors) -> list[Reading]:
    """Readings from 0 to `seconds`."""
    times = np.arange(0, seconds + every / 2, every)
    return [Reading(at_s=float(t), temp_c=temperature(t), **sensors) for t in times]


def test_a_gpu_is_hot_once_its_temperature_has_stopped_rising():
    span, step = regimes.HOT_SPAN, regimes.KELVIN
    assert regimes.is_hot(readings(span + 1))
    assert regimes.is_hot(readings(span + 1, lambda t: 50 + (step if t > 1 else 0)))
    assert not regimes.is_hot(readings(span + 1, lambda t: 50 + (step + 0.1 if t > 1 else 0)))
    assert regimes.is_hot(readings(span + 1, lambda t: 90 - t)), "cooling down is not rising"
    assert not regimes.is_hot(readings(span - 1)), "nothing is known of the beginning of the span"
    assert regimes.is_hot([Reading(0.0)]), "without a sensor, at once"


def test_a_gpu_is_rested_after_a_while_without_cooling_and_without_throttling():
    least = max(regimes.REST_LEAST, regimes.REST_SPAN) + 1
    assert regimes.is_rested(readings(least))
    assert regimes.is_rested(readings(least, throttle=regimes.IDLE))
    assert not regimes.is_rested(readings(least, throttle=0x4))
    assert not regimes.is_rested(readings(regimes.REST_LEAST - 0.2))
    assert not regimes.is_rested(readings(least, lambda t: 90 - 3 * regimes.KELVIN * t / regimes.REST_SPAN))
    assert regimes.is_rested(readings(least, lambda t: 50 + t)), "warming up is not cooling"


def chunks(seconds: float, time_us=lambda t: 100.0, every: float = 0.1) -> list[Chunk]:
    return [Chunk(float(t), 10, time_us(t)) for t in np.arange(0, seconds + every / 2, every)]


def test_a_run_is_steady_once_times_clocks_and_powers_stand():
    least = max(regimes.STEADY_LEAST, regimes.STEADY_SPAN) + 1
    still = readings(least, clock_mhz=1500.0, power_w=700.0)
    assert regimes.is_steady(chunks(least), still)
    assert not regimes.is_steady(chunks(regimes.STEADY_LEAST - 0.2), still)
    assert regimes.is_steady([Chunk(0.0, 1, 100.0), Chunk(regimes.STEADY_LEAST, 1, 100.0)], still[:1])
    assert not regimes.is_steady([Chunk(regimes.STEADY_LEAST + 5, 1, 100.0)], still), "one chunk shows no drift"
    late = least - regimes.STEADY_SPAN / 2
    assert not regimes.is_steady(chunks(least, lambda t: 100 * (1 + 2 * regimes.STEADY_TIME * (t > late))), still)
    early = chunks(least, lambda t: 200.0 if t < least - regimes.STEADY_SPAN - 0.2 else 100.0)
    assert regimes.is_steady(early, still), "what was before the span counts for nothing"
    apart = [Chunk(0.0, 1, 100.0), Chunk(50.0, 1, 100.0), Chunk(100.0, 1, 100 * (1 + 2 * regimes.STEADY_TIME))]
    assert not regimes.is_steady(apart, [Reading(0.0)]), "where the span holds one, two are compared"
    assert regimes.is_steady([*apart[:2], Chunk(100.0, 1, 100.0)], [Reading(0.0)])


@pytest.mark.parametrize(("sensor", "limit"), [("clock_mhz", "STEADY_CLOCK"), ("power_w", "STEADY_POWER")])
def test_a_drift_of_a_sensor_is_a_drift(sensor, limit):
    least = max(regimes.STEADY_LEAST, regimes.STEADY_SPAN) + 1
    still, late = readings(least, clock_mhz=1000.0, power_w=500.0), least - regimes.STEADY_SPAN / 2
    for share in (0.5, 2.0):
        high = {sensor: getattr(still[0], sensor) * (1 + share * getattr(regimes, limit))}
        drift = [replace(each, **high) if each.at_s > late else each for each in still]
        assert regimes.is_steady(chunks(least), drift) == (share < 1)


def test_a_ratio_compares_the_blocks_of_one_pass():
    own = [rows.Taken(True, [100.0, 101.0, 99.0], []), rows.Taken(False, [200.0, 202.0, 198.0], [])]
    other = [rows.Taken(True, [90.0], []), rows.Taken(True, [180.0], [])]
    cells = rows.regime_cells(regimes.SUSTAINED, own, other)
    assert cells["ratio"] == cells["ratio_ci_low"] == cells["ratio_ci_high"] == pytest.approx(0.9)
    assert cells["median_us"] == 150.0 and cells["rounds"] == 2 and cells["ready"] == 1
    assert cells["baseline_median_us"] == 135.0
    alone = rows.regime_cells(regimes.SUSTAINED, own, None)
    assert alone["ratio"] is None and alone["median_us"] == 150.0


def test_a_block_whose_calls_end_before_they_are_looked_at_has_a_reading(monkeypatch):
    gpu = SyntheticGpu()
    monkeypatch.setattr(gpu, "finished", lambda handle: bool(gpu.chunk(handle)))
    block = regimes.sustained(gpu, load(), seconds=0.1)
    assert len(block.chunks) >= regimes.LEAST_CHUNKS and len(block.readings) == 1
