"""The regimes on a GPU: a library alone, hot and from rest, and what the sensors say meanwhile."""

import statistics

import pytest

from gemmrepro import operands
from gemmrepro.gpu import baselines
from gemmrepro.measure import regimes, rows
from gemmrepro.measure.passes import GpuDevice
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def load(session) -> regimes.Load:
    """cuBLAS's fp32 GEMM at 4096."""
    problem, shape = Problem(), Shape.cube(4096)
    inputs, output = operands.random(problem, shape, 1)
    call = baselines.baseline("cublas.sgemm").bind(session, Operands(problem, shape, tuple(inputs), output))
    device = GpuDevice(session)
    device.chunk(device.queue(regimes.Load(call, 1, 1e4), 3))
    launch_us = device.chunk(device.queue(regimes.Load(call, 1, 1e4), 3)).time_us
    return regimes.Load(call, 1, launch_us)


def test_a_sustained_block_is_timed_without_gaps_and_has_energy(session, load):
    device = GpuDevice(session)
    regimes.heat(device, load)
    block = regimes.sustained(device, load, seconds=0.8)
    assert regimes.STEADY_LEAST <= block.waited_s
    times = [chunk.time_us for chunk in block.chunks]
    assert max(times) < 1.2 * min(times)
    # What was timed fills the block: the GPU never waited for the host.
    timed = sum(chunk.launches * chunk.time_us for chunk in block.chunks) * 1e-6
    assert timed == pytest.approx(block.chunks[-1].at_s - block.chunks[0].at_s + timed / len(times), rel=0.1)
    assert all(reading.clock_mhz and reading.power_w and reading.temp_c for reading in block.readings)
    power = rows.counted_power(block.readings)
    if session.energy() is None:
        assert power is None
        return
    momentary = statistics.median(reading.power_w or 0.0 for reading in block.readings)
    assert power == pytest.approx(momentary, rel=0.25)


def test_a_burst_follows_a_rest(session, load):
    block = regimes.burst(GpuDevice(session), load)
    assert len(block.chunks) == regimes.BURST_SAMPLES and block.waited_s >= regimes.REST_LEAST
    assert all(chunk.launches == 1 and chunk.time_us > 0 for chunk in block.chunks)
    assert block.readings
