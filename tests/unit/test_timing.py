"""When a round stops, how many launches a graph holds, how far buffers rotate: the parts of timing that need no GPU."""

import numpy as np
import pytest

from gemmrepro import timing
from gemmrepro.timing import Plan

PLAN = Plan(interval=0.01, seconds=0.4, least=3, most=200)


class Machine:
    """A simulated clock and kernel: pairs cost `pair_seconds` and scatter by `noise`."""

    def __init__(self, pair_seconds, noise, baseline=True, seed=0):
        self.now, self.calls = 0.0, []
        self._cost, self._noise, self._baseline = pair_seconds, noise, baseline
        self._random = np.random.default_rng(seed)

    def clock(self):
        return self.now

    def measure(self, count):
        self.calls.append(count)
        self.now += count * self._cost
        kernel = 100 * (1 + self._noise * self._random.standard_normal(count))
        baseline = 50 * (1 + self._noise * self._random.standard_normal(count))
        return [(float(a), float(b) if self._baseline else None) for a, b in zip(kernel, baseline, strict=True)]

    def collect(self, plan=PLAN):
        return timing.collect(self.measure, plan, self._cost, self.clock)


def test_a_quiet_point_stops_as_soon_as_its_interval_is_narrow():
    machine = Machine(0.001, 0.0005)
    burst = machine.collect()
    assert burst.settled(PLAN.interval)
    assert 6 <= len(burst.times) < 100
    assert machine.now < PLAN.seconds


def test_a_noisy_point_stops_when_its_seconds_are_spent():
    machine = Machine(0.01, 0.2)
    assert not machine.collect().settled(PLAN.interval)
    assert PLAN.seconds <= machine.now + 0.011 <= PLAN.seconds + 0.06


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


def test_a_noisy_baseline_keeps_the_round_going():
    burst = timing.Burst()
    quiet = [100.0 + 0.001 * index for index in range(20)]
    burst.add([(time_us, None) for time_us in quiet])
    assert burst.settled(0.01)
    noisy = timing.Burst()
    noisy.add([(time_us, 50.0 + 20 * (index % 2)) for index, time_us in enumerate(quiet)])
    assert not noisy.settled(0.01)
    five = timing.Burst([100.0] * 5, [50.0] * 5)
    assert not five.settled(0.01) and timing.Burst([100.0] * 6, [200.0] * 6).settled(0.0)


@pytest.mark.parametrize("size", [1 << 18, 3 << 20, 60 << 20, 1 << 30])
def test_rotation_puts_twice_the_l2_between_two_uses_of_a_buffer(size):
    l2 = 60 << 20
    sets = timing.rotation_sets(size, l2)
    assert (sets - 1) * size >= 2 * l2
    assert (sets - 2) * size < 2 * l2


def test_graphs_last_long_enough_and_walk_whole_rounds_over_the_copies():
    assert timing.graph_launches(4.0) * 4.0 >= 900
    assert timing.graph_launches(0.5) == timing.GRAPH_MOST
    assert timing.graph_launches(20_000.0) == 1
    for copies in (1, 2, 11, 161, 300):
        for launch in (3.0, 40.0, 900.0):
            count = timing.graph_launches(launch, copies)
            assert count % copies == 0 and count >= copies
            assert count * launch >= 700 or count >= timing.GRAPH_MOST


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


def test_a_drift_that_both_sides_share_leaves_the_ratio_narrow():
    times = [100.0, 102.0] * 10
    assert timing.Burst(times, [2 * time for time in times]).settled(0.03)
    assert not timing.Burst(times, [2e4 / time for time in times]).settled(0.03), "the ratio varies twice as much"


def test_a_short_launch_on_either_side_asks_for_graphs():
    asked = [timing.wants_graphs(*times) for times in ((10.0, 3000.0), (3000.0, 10.0), (10.0, None), (60.0, None))]
    assert asked == [True, True, True, False] and not timing.wants_graphs(60.0, 70.0)
