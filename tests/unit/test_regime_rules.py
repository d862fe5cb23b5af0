"""When a GPU counts as hot, rested or steady."""

from __future__ import annotations

import numpy as np
import pytest

from gemmrepro.measure import regimes as rules
from gemmrepro.measure.regimes import Chunk, Reading


def readings(seconds: float, temperature=lambda t: 50.0, every: float = 0.1, **sensors) -> list[Reading]:
    """Readings from 0 to `seconds`."""
    times = np.arange(0, seconds + every / 2, every)
    return [Reading(at_s=float(t), temp_c=temperature(t), **sensors) for t in times]


def test_a_gpu_is_hot_once_its_temperature_has_stopped_rising():
    span, step = rules.HOT_SPAN, rules.KELVIN
    assert rules.is_hot(readings(span + 1))
    assert rules.is_hot(readings(span + 1, lambda t: 50 + (step if t > 1 else 0)))
    assert not rules.is_hot(readings(span + 1, lambda t: 50 + (step + 0.1 if t > 1 else 0)))
    assert rules.is_hot(readings(span + 1, lambda t: 90 - t)), "cooling down is not rising"
    assert not rules.is_hot(readings(span - 1)), "nothing is known of the beginning of the span"
    assert rules.is_hot([Reading(0.0)]), "without a sensor, at once"


def test_a_gpu_is_rested_after_a_while_without_cooling_and_without_throttling():
    least = max(rules.REST_LEAST, rules.REST_SPAN) + 1
    assert rules.is_rested(readings(least))
    assert rules.is_rested(readings(least, throttle=rules.IDLE))
    assert not rules.is_rested(readings(least, throttle=0x4))
    assert not rules.is_rested(readings(rules.REST_LEAST - 0.2))
    assert not rules.is_rested(readings(least, lambda t: 90 - 3 * rules.KELVIN * t / rules.REST_SPAN))
    assert rules.is_rested(readings(least, lambda t: 50 + t)), "warming up is not cooling"


def chunks(seconds: float, time_us=lambda t: 100.0, every: float = 0.1) -> list[Chunk]:
    return [Chunk(float(t), 10, time_us(t)) for t in np.arange(0, seconds + every / 2, every)]


def test_a_run_is_steady_once_times_clocks_and_powers_stand():
    least = max(rules.STEADY_LEAST, rules.STEADY_SPAN) + 1
    still = readings(least, clock_mhz=1500.0, power_w=700.0)
    assert rules.is_steady(chunks(least), still)
    assert not rules.is_steady(chunks(rules.STEADY_LEAST - 0.2), still)
    assert rules.is_steady([Chunk(0.0, 1, 100.0), Chunk(rules.STEADY_LEAST, 1, 100.0)], still[:1])
    assert not rules.is_steady([Chunk(rules.STEADY_LEAST + 5, 1, 100.0)], still), "one chunk shows no drift"
    late = least - rules.STEADY_SPAN / 2
    assert not rules.is_steady(chunks(least, lambda t: 100 * (1 + 2 * rules.STEADY_TIME * (t > late))), still)
    early = chunks(least, lambda t: 200.0 if t < least - rules.STEADY_SPAN - 0.2 else 100.0)
    assert rules.is_steady(early, still), "what was before the span counts for nothing"


@pytest.mark.parametrize(("sensor", "limit"), [("clock_mhz", "STEADY_CLOCK"), ("power_w", "STEADY_POWER")])
def test_a_drift_of_a_sensor_is_a_drift(sensor, limit):
    least = max(rules.STEADY_LEAST, rules.STEADY_SPAN) + 1
    late = least - rules.STEADY_SPAN / 2

    def of(share: float) -> list[Reading]:
        low = {"clock_mhz": 1000.0, "power_w": 500.0}
        high = {**low, sensor: low[sensor] * (1 + share)}
        times = np.arange(0, least + 0.05, 0.1)
        return [Reading(at_s=float(t), temp_c=50.0, **(high if t > late else low)) for t in times]

    most = getattr(rules, limit)
    assert rules.is_steady(chunks(least), of(0.5 * most))
    assert not rules.is_steady(chunks(least), of(2.0 * most))


def test_two_chunks_are_compared_where_the_span_holds_one():
    apart = [Chunk(0.0, 1, 100.0), Chunk(50.0, 1, 100.0), Chunk(100.0, 1, 100 * (1 + 2 * rules.STEADY_TIME))]
    assert not rules.is_steady(apart, [Reading(0.0)])
    assert rules.is_steady([*apart[:2], Chunk(100.0, 1, 100.0)], [Reading(0.0)])


def test_one_slow_chunk_is_no_drift_of_the_times_and_one_reading_moves_the_mean_power():
    least = max(rules.STEADY_LEAST, rules.STEADY_SPAN) + 1
    still = readings(least, clock_mhz=1500.0, power_w=700.0)
    times = chunks(least, every=0.01)
    times[-1] = Chunk(times[-1].at_s, 10, 1e4)
    assert rules.is_steady(times, still), "times are compared by their medians"
    still[-1] = Reading(still[-1].at_s, clock_mhz=1500.0, power_w=7000.0, temp_c=50.0)
    assert not rules.is_steady(chunks(least), still), "powers are compared by their means"
