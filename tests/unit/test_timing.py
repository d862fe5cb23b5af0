"""When a round stops, how many launches a graph holds, how far buffers rotate: the parts of timing that need no GPU."""

import numpy as np
import pytest

from gemmrepro import timing
from gemmrepro.timing import Plan

PLAN = Plan(interval=0.01, seconds=0.4, least=3, most=200)


class Machine:
    """A simulated clock and kernel: pairs cost `pair_seconds` and scatter by `noise`."""

    def __init__(self, pair_seconds, noise):
        self.now, self._cost, self._noise = 0.0, pair_seconds, noise
        self._random = np.random.default_rng(0)

    def clock(self):
        return self.now

    def measure(self, count):
        self.now += count * self._cost
        spread = 1 + self._noise * self._random.standard_normal((count, 2))
        return [(100 * float(time), 50 * float(baseline)) for time, baseline in spread]

    def collect(self, plan=PLAN):
        return timing.collect(self.measure, plan, self._cost, self.clock)


def test_a_quiet_point_stops_as_soon_as_its_interval_is_narrow_and_a_noisy_one_when_its_seconds_are_spent():
    quiet, noisy = Machine(0.001, 0.0005), Machine(0.01, 0.2)
    burst = quiet.collect()
    assert burst.settled(PLAN.interval) and 6 <= len(burst.times) < 100 and quiet.now < PLAN.seconds
    assert not noisy.collect().settled(PLAN.interval) and PLAN.seconds <= noisy.now + 0.011 <= PLAN.seconds + 0.06


@pytest.mark.parametrize(
    ("seconds_of_a_pair", "noise", "plan", "pairs"),
    [
        (0.0, 0.5, PLAN, 200),  # launches may be quicker than the host's clock ticks
        (0.3, 0.0, PLAN, 3),  # the least, even where it takes longer than the seconds
        (2.2, 0.0, PLAN, 1),  # one, where a single one takes longer
        (1.0, 0.2, Plan(interval=1e-9, seconds=5.5, least=5, most=200), 5),  # half a second is left
    ],
)
def test_pairs_are_as_many_as_the_seconds_and_the_plan_allow(seconds_of_a_pair, noise, plan, pairs):
    assert len(Machine(seconds_of_a_pair, noise).collect(plan).times) == pairs


@pytest.mark.parametrize(
    ("times", "baseline", "interval", "settled"),
    [
        ([100.0 + 0.001 * index for index in range(20)], [], 0.01, True),
        ([100.0] * 20, [50.0, 70.0] * 10, 0.01, False),  # a noisy baseline keeps the round going
        ([100.0] * 5, [50.0] * 5, 0.01, False),
        ([100.0] * 6, [200.0] * 6, 0.0, True),
        ([100.0, 102.0] * 10, [200.0, 204.0] * 10, 0.03, True),  # a drift that both sides share
        ([100.0, 102.0] * 10, [200.0, 2e4 / 102] * 10, 0.03, False),
    ],
)
def test_a_round_is_settled_once_its_times_and_its_ratio_are_narrow(times, baseline, interval, settled):
    assert timing.Burst(times, baseline).settled(interval) == settled


@pytest.mark.parametrize("size", [1 << 18, 3 << 20, 60 << 20, 1 << 30])
def test_rotation_puts_twice_the_l2_between_two_uses_of_a_buffer(size):
    l2 = 60 << 20
    sets = timing.rotation_sets(size, l2)
    assert (sets - 1) * size >= 2 * l2
    assert (sets - 2) * size < 2 * l2


def test_sensors_are_summed_up_and_every_throttle_reason_is_kept():
    readings = [
        {"clock_mhz": 1980, "power_w": 300.0, "temp_c": 50, "throttle": 0x1},
        {"clock_mhz": 1800, "power_w": 690.0, "temp_c": 61, "throttle": 0x4},
        {"clock_mhz": 1900, "power_w": None, "temp_c": 60, "throttle": 0x40},
    ]
    found = timing.summarize_sensors(readings)
    assert found == {"clock_mhz": 1900, "power_w": 495.0, "temp_c": 61, "throttle": "sw_power_cap+hw_thermal_slowdown"}
    assert timing.summarize_sensors([{**readings[0]}])["throttle"] == "none"
    assert set(timing.summarize_sensors([]).values()) == {None}


def test_a_short_launch_on_either_side_asks_for_graphs():
    asked = [timing.wants_graphs(*times) for times in ((10.0, 3000.0), (3000.0, 10.0), (10.0, None), (60.0, None))]
    assert asked == [True, True, True, False] and not timing.wants_graphs(60.0, 70.0)
