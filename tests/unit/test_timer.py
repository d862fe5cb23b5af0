"""The timer on a simulated GPU: what lies between two events, in which order, and on which copies of the operands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gemmrepro import timing
from gemmrepro.timing import Plan, Timer

L2 = 1 << 16
FLUSH_US = 100.0
QUIET = Plan(interval=0.01, seconds=10.0, least=3, most=50)


class Graph:
    def __init__(self, gpu: Gpu, calls: list[Callable[[], None]]) -> None:
        self._gpu, self._calls, self.uploaded = gpu, calls, False

    def upload(self, stream) -> None:
        self.uploaded = True

    def launch(self, stream) -> None:
        assert self.uploaded and stream is self._gpu
        for call in self._calls:
            call()


class Event:
    def __init__(self) -> None:
        self.at = float("nan")

    def record(self, stream: Gpu) -> None:
        stream.log.append("event")
        self.at = stream.now


class Array:
    """What the timer writes and reads to flush L2."""

    def __init__(self, gpu: Gpu, count: int) -> None:
        self.nbytes, self.data, self._gpu = 4 * count, SimpleNamespace(ptr=id(self)), gpu

    def sum(self, out: Array) -> None:
        self._gpu.spend(FLUSH_US / 2, f"read {self.nbytes}")


class Gpu:
    """A stream that runs what it is given at once, on a clock of microseconds; the host waits for it in `sync`.

    Args:
        slow: the factor by which launches take longer, by the time in µs.
    """

    ptr = 7

    def __init__(self, slow: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.seen, self.slow = 0.0, 0.0, slow
        self.log: list[str] = []
        self.recording: list[Callable[[], None]] | None = None
        self.busy_when_read: list[bool] = []

    def spend(self, us: float, what: str) -> None:
        self.now += us
        self.log.append(what)

    def launch(self, name: str, us: float) -> Callable[[], None]:
        """A call that launches a kernel of `us`, or records it while a graph is captured."""

        def run() -> None:
            self.spend(us * self.slow(self.now), name)

        return lambda: run() if self.recording is None else self.recording.append(run)

    def begin_capture(self) -> None:
        self.recording = []

    def end_capture(self) -> Graph:
        calls, self.recording = self.recording, None
        return Graph(self, calls)

    def sync(self) -> None:
        self.seen = self.now

    def sensors(self) -> dict[str, float]:
        self.busy_when_read.append(self.now > self.seen)
        return {"clock_mhz": 1000.0}

    @property
    def launches(self) -> list[str]:
        return [what for what in self.log if len(what) == 1]


def cupy_of(gpu: Gpu) -> SimpleNamespace:
    def elapsed_ms(first: Event, last: Event) -> float:
        return (last.at - first.at) / 1e3

    def memset(pointer: int, value: int, size: int, stream: int) -> None:
        assert stream == gpu.ptr
        gpu.spend(FLUSH_US / 2, f"write {size}")

    runtime = SimpleNamespace(memsetAsync=memset)
    cuda = SimpleNamespace(Event=Event, get_elapsed_time=elapsed_ms, runtime=runtime)
    make = lambda shape, dtype: Array(gpu, 1 if shape == () else shape)  # noqa: E731
    return SimpleNamespace(cuda=cuda, empty=make, zeros=make, float32="float32")


BOOTED = 1000.0
"""What the host's clock reads in seconds when a test begins."""


def timer_on(gpu: Gpu, monkeypatch) -> Timer:
    """A timer that marks the log where the GPU has settled."""
    monkeypatch.setitem(sys.modules, "cupy", cupy_of(gpu))
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: BOOTED + gpu.seen * 1e-6))
    timer = Timer(SimpleNamespace(gpu=SimpleNamespace(l2_bytes=L2), stream=gpu, sync=gpu.sync, sensors=gpu.sensors))
    settle = timer._settle
    monkeypatch.setattr(timer, "_settle", lambda *given: (settle(*given), gpu.log.append("mark")))
    return timer


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def timer(gpu, monkeypatch) -> Timer:
    return timer_on(gpu, monkeypatch)


def after_settling(gpu: Gpu) -> list[str]:
    """What the samples are made of."""
    return gpu.log[gpu.log.index("mark") + 1 :]


def test_one_launch_is_timed_in_microseconds(timer, gpu):
    assert timer.once(gpu.launch("a", 7.5)) == pytest.approx(7.5)
    assert gpu.log == ["event", "a", "event"] and gpu.seen == gpu.now


def test_kernel_and_baseline_alternate_and_sensors_are_read_while_the_gpu_works(timer, gpu):
    burst = timer.burst([gpu.launch("a", 80.0)], [gpu.launch("b", 120.0)], "warm", QUIET, (80.0, 120.0), False)
    assert burst.times == pytest.approx([80.0] * len(burst.times)) and len(burst.times) >= 6
    assert burst.baseline == pytest.approx([120.0] * len(burst.times))
    log = after_settling(gpu)
    assert log[:2] == ["a", "b"], "code is loaded and caches are as later samples find them"
    assert log[2:] == ["event", "a", "event", "event", "b", "event"] * len(burst.times), "no flush between warm ones"
    assert burst.mode == "single launches"
    assert burst.sensors and all(gpu.busy_when_read)


def test_cold_launches_follow_a_flush_of_twice_the_l2_that_is_not_timed(timer, gpu):
    burst = timer.burst([gpu.launch("a", 80.0)], None, "cold", QUIET, (80.0, None), False)
    assert burst.times == pytest.approx([80.0] * len(burst.times)) and burst.baseline == []
    size = 2 * L2 + 4096
    sample = [f"write {size}", f"read {size}", "event", "a", "event"]
    assert after_settling(gpu) == ["a", *sample * len(burst.times)]


def test_a_cold_graph_goes_through_all_copies_of_the_operands_in_turn(timer, gpu):
    copies = [gpu.launch(name, 10.0) for name in "abc"]
    burst = timer.burst(copies, None, "cold", QUIET, (10.0, None), True)
    assert burst.mode == "graphs of 102 launches over 3 copies"
    assert burst.times == pytest.approx([10.0] * len(burst.times))
    replay = ["event", *"abc" * 34, "event"]
    assert after_settling(gpu) == [*"abc" * 34, *replay * len(burst.times)], "a flush would be inside the timed region"


def test_the_faster_side_warms_the_gpu_up_and_a_launch_of_seconds_is_not_repeated_for_it(timer, gpu, monkeypatch):
    slow, fast = gpu.launch("s", 60_000.0), gpu.launch("f", 100.0)
    timer.burst([slow], [fast], "warm", QUIET, (60_000.0, 100.0), False)
    mark = gpu.log.index("mark")
    assert "s" not in gpu.log[:mark] and gpu.log[:mark].count("f") > 100
    assert after_settling(gpu)[:4] == ["f", "event", "s", "event"]
    alone = Gpu()
    timer_on(alone, monkeypatch).burst([alone.launch("s", 60_000.0)], None, "warm", QUIET, (60_000.0, None), False)
    assert after_settling(alone)[:4] == ["s", "event", "s", "event"], "alone, it loads its code in a launch of its own"


def test_samples_wait_until_the_clock_has_ramped_up(monkeypatch):
    # Launches speed up by half over some 20 ms.
    gpu = Gpu(lambda now: 1.0 + 2.0 ** (-now / 20_000.0))
    timer = timer_on(gpu, monkeypatch)
    burst = timer.burst([gpu.launch("a", 100.0)], None, "warm", QUIET, (100.0, None), False)
    assert max(burst.times) < 102.0
    assert gpu.now < 400_000.0


def test_a_capture_ends_even_if_a_call_fails_and_says_what_failed(timer, gpu, monkeypatch):
    def broken() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        timer.capture([gpu.launch("a", 1.0), broken])
    assert gpu.recording is None and gpu.log == []
    timer.replay([gpu.launch("a", 1.0), gpu.launch("b", 1.0)])
    assert gpu.launches == ["a", "b"] and gpu.recording is None

    def refuse() -> None:
        raise RuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr(gpu, "end_capture", refuse)  # in words that do not name the call that broke it
    with pytest.raises(RuntimeError, match="no"):
        timer.capture([broken])
