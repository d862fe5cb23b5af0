"""Kernels that cheat, and who catches them: the gate, the sweep's judgement before the timing, or the one after it.

Python stands in for the kernels and a simulated clock for the GPU's; gate, rounds and records are real. The same cheats
as CUDA kernels are in tests/gpu/test_gpu_cheats.py.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_cupy import StandIn

from gemmrepro import registry, timing
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.gates import gemm, gemm_cases
from gemmrepro.gates.gate import POISON_BITS
from gemmrepro.gpu import baselines
from gemmrepro.gpu.cublas import Trials
from gemmrepro.measure import plan, prepare, results, rounds
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape

NAIVE = registry.kernel("ladder.naive")
WORK_US, SKIP_US, PAUSE_US = 1000.0, 5.0, 100.0
"""What an honest launch takes, one that only returns, and the host between two launches that it waits for."""
SIZE = 48
"""What the sweep times; no shape of the gate."""
REFERENCES = gemm.References()


@dataclass
class Gpu:
    """The simulated GPU: its clock, when it was last busy, and work on streams that nobody waits for."""

    now: float = 0.0
    idle_since: float = -1e9
    launch_us: float = WORK_US
    in_graph: bool = False
    elsewhere: list[Callable[[], None]] = field(default_factory=list)

    def work(self, microseconds: float) -> None:
        self.now += microseconds
        self.idle_since = self.now

    def wait(self) -> None:
        self.now += PAUSE_US


def matrices(given: Operands) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape, (a, b) = given.shape, (np.asarray(array) for array in given.inputs)
    return a.reshape(shape.m, shape.k), b.reshape(shape.k, shape.n), given.output.reshape(shape.m, shape.n)


def product(given: Operands) -> np.ndarray:
    """C as it should be, rounded once."""
    a, b, c = matrices(given)
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.zeros(c.shape) if given.alpha == 0 else np.float32(given.alpha) * (a.astype(np.float64) @ b)
        if given.beta != 0:
            made = made + np.float32(given.beta) * np.asarray(c, np.float64)
        return made.astype(np.float32)


def where(given: Operands) -> tuple[int, ...]:
    return tuple(array.__array_interface__["data"][0] for array in (*given.inputs, given.output))


class Kernel:
    """An honest kernel; a cheat overrides `launch`."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.kept, self.launches = gpu, {}, 0

    def __call__(self, given: Operands) -> None:
        self.launches += 1
        self.launch(given)

    def launch(self, given: Operands) -> None:
        self.put(given, product(given))

    def put(self, given: Operands, made: np.ndarray) -> None:
        given.output.reshape(made.shape)[...] = made
        self.gpu.work(self.gpu.launch_us)

    def from_memory(self, given: Operands, key: object) -> None:
        """Give back what was stored under `key`, or compute and store it."""
        if key not in self.kept:
            self.put(given, product(given))
            self.kept[key] = np.array(given.output)
            return
        given.output[...] = self.kept[key]
        self.gpu.work(SKIP_US)


Launch = Callable[[Kernel, Operands], object]


def masked(given: Operands) -> Operands:
    """The same with operands cut to TF32."""
    inputs = tuple((array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for array in given.inputs)
    return replace(given, inputs=inputs)


def gives_back(key: Callable[[Operands], object]) -> Launch:
    return lambda kernel, given: kernel.from_memory(given, key(given))


def puts(made: Callable[[Operands], np.ndarray]) -> Launch:
    return lambda kernel, given: kernel.put(given, made(given))


def skips_if(skip: Callable[[Kernel, Operands], bool]) -> Launch:
    """Returns at once where `skip` says so, and is honest elsewhere."""
    return lambda kernel, given: kernel.gpu.work(SKIP_US) if skip(kernel, given) else kernel.put(given, product(given))


def knows_seeds(kernel: Kernel, given: Operands) -> None:
    for seed in (1, 2):
        for case in gemm_cases.gemm_cases(NAIVE, [seed]):
            if case.shape == given.shape and case.shape != gemm_cases.gemm_shapes(NAIVE)[2]:
                right = REFERENCES.of(NAIVE.problem, case)
                if right.a.tobytes() == np.asarray(given.inputs[0]).tobytes():
                    return kernel.put(given, product(given))
    return kernel.put(given, np.zeros_like(product(given)))


def on_the_gates_shapes(given: Operands) -> np.ndarray:
    shapes, middling, large = gemm_cases.gemm_shapes(NAIVE)
    return product(given) * np.float32(1.0 if given.shape in (*shapes, middling, large) else 0.5)


def by_pointers(kernel: Kernel, given: Operands) -> None:
    if given.shape.m != SIZE:
        return kernel.put(given, product(given))
    return kernel.from_memory(given, where(given))


def contents(given: Operands) -> object:
    key = [array.tobytes() for array in (*given.inputs, matrices(given)[2] if given.beta else given.inputs[0])]
    return given.shape, given.alpha, given.beta, hash(tuple(key))


def no_poison(kernel: Kernel, given: Operands) -> bool:
    return given.beta == 0 and int(given.output.reshape(-1)[:1].view(np.uint32)[0]) != POISON_BITS[4]


CHEATS: dict[str, tuple[str, Launch]] = {
    "keeps its first result for each shape, alpha and beta": (
        "gate",
        gives_back(lambda given: (given.shape, given.alpha, given.beta)),
    ),
    "multiplies in TF32": ("gate", puts(lambda given: product(masked(given)))),
    "answers the seeds 1 and 2, and gives zeros for others": ("gate", knows_seeds),
    "is right on the gate's shapes alone": ("before", puts(on_the_gates_shapes)),
    "returns if C is no poison": ("after", skips_if(no_poison)),
    "computes 400 times, and then no more": ("after", skips_if(lambda kernel, _: kernel.launches > 400)),
    "keeps its result for each set of pointers, away from the gate's shapes": ("after", by_pointers),
    "keeps its result by a hash of its inputs": ("after", gives_back(contents)),
    "returns if the launch before has only just ended": (
        "after",
        skips_if(lambda kernel, _: kernel.gpu.now - kernel.gpu.idle_since < PAUSE_US / 2),
    ),
}
"""By name: who catches it ("gate", or the sweep "before" or "after" the timing), and its launch."""


class Timer:
    """Times launches by the simulated clock; a burst does not wait between them."""

    gpu: Gpu

    def __init__(self, session: object) -> None:
        pass

    def flush(self) -> None:
        self.gpu.wait()

    def once(self, call: Callable[[], None]) -> float:
        self.gpu.wait()
        took = self._next(call)
        self.gpu.wait()
        return took

    def _next(self, call: Callable[[], None]) -> float:
        start = self.gpu.now
        call()
        return self.gpu.now - start

    def replay(self, calls: Sequence[Callable[[], None]]) -> None:
        self.gpu.wait()
        self.gpu.in_graph = True
        for call in calls:
            call()
        self.gpu.in_graph = False
        self.gpu.wait()

    def estimate(self, call: Callable[[], None], first_us: float) -> float:
        return min(first_us, *(self._next(call) for _ in range(5)))

    def burst(self, calls, beside, cache, plan, estimates, graphs) -> timing.Burst:
        self.gpu.in_graph = graphs
        for _ in range(600):  # as a GPU is kept busy before a round
            calls[0]()
        pairs = [(self._next(calls[0]), self._next(beside[0]) if beside else None) for _ in range(9)]
        self.gpu.in_graph = False
        burst = timing.Burst(mode="simulated")
        burst.add(pairs)
        return burst


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    made = Gpu()
    monkeypatch.setitem(sys.modules, "cupy", StandIn())
    monkeypatch.setattr(timing, "Timer", type("Timer", (Timer,), {"gpu": made}))
    return made


def launches_of(name: str, gpu: Gpu) -> Kernel:
    kernel = Kernel(gpu)
    if name:
        kernel.launch = lambda given: CHEATS[name][1](kernel, given)
    return kernel


def gate(kernel: Kernel, gpu: Gpu) -> str:
    """What the gate says first on a fresh seed, without the shape that fills a GPU; "" if everything passes."""
    large = gemm_cases.gemm_shapes(NAIVE)[2]
    session = SimpleNamespace(sync=gpu.wait)
    for case in gemm_cases.gemm_cases(NAIVE, fresh_seeds(1)):
        if case.shape != large:
            judged = gemm.run_case(session, kernel, case, NAIVE.problem, kernel=NAIVE, references=REFERENCES)
            if not judged.verdict.passed:
                return judged.verdict.message
    return ""


CARD = {"name": "GPU A", "driver": "1.0", "arch": "sm_90", "compute_capability": (9, 0), "sm_count": 132}
CARD |= {"clock_max_mhz": 1980, "watched": False, "pci_bus": "0", "l2_bytes": 1 << 20}
CARD |= {"machine": {"gpu": "GPU A", "driver": "1.0", "card": "c1"}}


def session_on(**facts) -> SimpleNamespace:
    """A session on a GPU with these facts; by default of an H200."""
    return SimpleNamespace(
        **{"gpu": SimpleNamespace(**CARD | facts), "trials": Trials(), "stream": SimpleNamespace(ptr=7)},
        **{"other_processes": lambda: 0, "free_bytes": lambda: 1 << 34, "sync": lambda: None},
    )


def swept(kernel: Kernel, gpu: Gpu, folder, monkeypatch) -> tuple[prepare.Sweep, list[str]]:
    """A sweep of one round over the kernel of SIZE, beside an honest library; and what was said."""
    said: list[str] = []
    document = {"rounds": 2, "interval": 0.01, "seconds_per_round": 0.1, "samples_per_round": [3, 9]}
    document |= {"caches": ["cold", "warm"], "toolkits": ["cuda13"], "sizes": {"ladder": [SIZE]}}
    honest = Kernel(gpu)
    library = baselines.Baseline(
        "cublas.sgemm", "cuBLAS", "gemm", lambda _, given: lambda: honest(given), lambda _: "1"
    )
    monkeypatch.setitem(baselines.BASELINES, "cublas.sgemm", library)
    binary = SimpleNamespace(arch="sm_90", build_key="k" * 16, bind=lambda given: lambda: kernel(given))
    settings, journal = plan.Settings.of(document, "ladder"), folder / "journal"
    places = (folder, folder, journal)
    given = {(NAIVE.id, "cuda13"): binary}
    sweep = prepare.prepare(session_on(), {NAIVE.id: NAIVE}, settings, *places, said.append, given=given)
    assert rounds.Rounds(sweep, said.append).run(0, None)
    return sweep, said


def test_an_honest_kernel_passes_and_is_judged_again_once(gpu, tmp_path, monkeypatch) -> None:
    kernel = launches_of("", gpu)
    assert gate(kernel, gpu) == ""
    sweep, said = swept(kernel, gpu, tmp_path, monkeypatch)
    assert [measured.point.kernel for measured in results.gather(sweep)] == [*[NAIVE.id] * 2, *["cublas.sgemm"] * 2]
    assert results.wrong(sweep) == [] and not any("not reported" in line for line in said)
    assert sweep.check(sweep.points[0]).confirmed
    before = kernel.launches
    assert rounds.Rounds(sweep, said.append).run(1, None)
    assert kernel.launches - before == 2 * (600 + 9), "the second round only times"


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_caught(name, gpu, tmp_path, monkeypatch) -> None:
    caught, kernel = CHEATS[name][0], launches_of(name, gpu)
    message = gate(kernel, gpu)
    assert bool(message) == (caught == "gate"), message or "the gate has not noticed"
    if caught == "gate":
        return
    sweep, said = swept(kernel, gpu, tmp_path, monkeypatch)
    (refused,) = results.wrong(sweep)
    assert (refused.kernel, "on " in refused.reason) == (NAIVE.id, caught == "after"), refused.reason
    timed = [measured.point.kernel for measured in results.gather(sweep)]
    assert timed == ["cublas.sgemm"] * 2, "what cheats has no row"
    assert sum("not reported" in line for line in said) == (caught == "after")
    assert {point.kernel for _, point in sweep.todo()} == {"cublas.sgemm"}, "later rounds leave it out"


SHORT_US = 30.0
"""A launch that is timed in graphs, and may take longer on new inputs by more than it takes at all."""

SHORT = {
    "returns in a graph": lambda gpu: gpu.in_graph,
    "returns if the launch before has only just ended": lambda gpu: gpu.now - gpu.idle_since < PAUSE_US / 2,
}


@pytest.mark.parametrize("name", ["", *SHORT])
def test_short_launches_are_judged_in_a_graph_as_they_were_timed(name, gpu, tmp_path, monkeypatch) -> None:
    gpu.launch_us = SHORT_US
    kernel = launches_of("", gpu)
    skips = SHORT.get(name, lambda gpu: False)
    kernel.launch = lambda given: gpu.work(SKIP_US) if skips(gpu) else kernel.put(given, product(given))
    assert gate(kernel, gpu) == ""
    sweep, said = swept(kernel, gpu, tmp_path, monkeypatch)
    wrong = [refused.reason for refused in results.wrong(sweep)]
    assert len(wrong) == bool(name) == sum("not reported" in line for line in said)
    assert all("on other inputs, after it was timed, in a graph: " in reason for reason in wrong)
    assert sweep.check(sweep.points[0]).confirmed


def test_a_kernel_that_no_graph_can_hold_is_judged_launch_by_launch(gpu, tmp_path, monkeypatch) -> None:
    gpu.launch_us = SHORT_US
    monkeypatch.setattr(registry.Kernel, "capturable", False)
    monkeypatch.setattr(Timer, "replay", None)
    sweep, _ = swept(launches_of("", gpu), gpu, tmp_path, monkeypatch)
    assert results.wrong(sweep) == [] and sweep.check(sweep.points[0]).confirmed


def test_a_cheat_that_begins_in_a_later_round_is_caught_there(gpu, tmp_path, monkeypatch) -> None:
    """What counts to more launches than the first round makes: that round was honest, and its rows go as well."""
    kernel = launches_of("", gpu)
    first = 6 + 2 * 609 + 1  # the check and its estimates, both points' bursts, the second judgement

    def launch(given: Operands) -> None:
        return kernel.put(given, product(given)) if kernel.launches <= first + 50 else gpu.work(SKIP_US)

    kernel.launch = launch
    sweep, said = swept(kernel, gpu, tmp_path, monkeypatch)
    assert kernel.launches == first and results.wrong(sweep) == []
    assert rounds.Rounds(sweep, said.append).run(1, None)
    (refused,) = results.wrong(sweep)
    assert refused.kernel == NAIVE.id and "on other inputs, after it was timed" in refused.reason
    assert {measured.point.kernel for measured in results.gather(sweep)} == {"cublas.sgemm"}


def test_the_gpu_is_busy_until_the_host_has_submitted_the_launch() -> None:
    """A host that takes 200 µs to submit a launch, a GPU that takes 40 µs for a flush and 6 µs for the kernel."""
    host, gpu = 200.0, [0.0]

    def flush() -> None:
        gpu[0] += 40.0

    def once(call: Callable[[], None]) -> float:
        took = 6.0 + max(0.0, host - gpu[0])
        gpu[0] = 0.0
        return took

    operands = SimpleNamespace(renew=lambda seed: None, scramble=lambda: None)
    operands.judged = lambda kernel: SimpleNamespace(passed=True, message="")
    judge = rounds.SecondLook(operands, SimpleNamespace(flush=flush, once=once)).judge
    assert judge([rounds.Second(lambda index: lambda: None, NAIVE, 6.0)]) == [""]


@pytest.mark.parametrize("honest", [True, False])
def test_a_launch_that_is_timed_again_is_judged_again(honest: bool) -> None:
    """What stored the result of the first, slow launch on other inputs gives it back in the second; a clock that dips
    once is no cheat."""
    times, verdicts = chain([600.0], repeat(6.0)), chain([True], repeat(honest))
    operands = SimpleNamespace(
        renew=lambda seed: None,
        scramble=lambda: None,
        judged=lambda kernel: SimpleNamespace(passed=next(verdicts), message="9 elements are wrong"),
    )
    clock = SimpleNamespace(flush=lambda: None, once=lambda call: next(times))
    (message,) = rounds.SecondLook(operands, clock).judge([rounds.Second(lambda index: lambda: None, NAIVE, 6.0)])
    assert message == ("" if honest else "on other inputs, after it was timed: 9 elements are wrong")


def test_a_round_ends_at_its_deadline_and_goes_on_where_it_stopped(gpu, tmp_path, monkeypatch) -> None:
    kernel = launches_of("", gpu)
    sweep, said = swept(kernel, gpu, tmp_path, monkeypatch)
    left = len(sweep.todo())
    assert left == 4, "kernel and library, cold and warm, of the second round"
    assert not rounds.Rounds(sweep, said.append).run(1, time.monotonic() - 1)
    assert len(sweep.todo()) == left
    clock = iter([0.0, 0.0, 99.0])
    monkeypatch.setattr(rounds, "passed", lambda deadline: next(clock) > deadline)
    assert not rounds.Rounds(sweep, said.append).run(1, 50.0)
    assert len(sweep.todo()) == left - 1, "one point was measured before the time was up"


def test_a_finished_round_opens_no_timer_and_other_processes_are_said(gpu, tmp_path, monkeypatch, capsys) -> None:
    sweep, said = swept(launches_of("", gpu), gpu, tmp_path, monkeypatch)
    monkeypatch.setattr(timing, "Timer", None)
    assert rounds.Rounds(sweep, said.append).run(0, time.monotonic() - 1), "nothing is left of it"
    monkeypatch.setattr(timing, "Timer", type("Timer", (Timer,), {"gpu": gpu}))
    assert not any("another process" in line for line in said)
    sweep.session.other_processes = lambda: 1
    assert rounds.Rounds(sweep, said.append).run(1, time.monotonic() + 3600)
    assert sum("another process has this GPU open" in line for line in said) == 1
    measured = [line for line in capsys.readouterr().out.splitlines() if "round 2" in line]
    assert len(measured) == 4 and all("9 samples" in line and "simulated" in line for line in measured)
    assert all(" ratio 1" in line for line in measured), "beside the library, whose own rows check the method"


def test_a_library_that_sums_in_fp16_is_judged_by_the_bound_of_such_a_kernel(monkeypatch) -> None:
    sketch, judged = registry.kernel("hopper.sketch"), []
    sweep = SimpleNamespace(
        kernels={sketch.id: sketch},
        check=lambda point: None,
        keep_check=lambda *_: None,
        session=SimpleNamespace(trials=Trials()),
    )
    workspace = SimpleNamespace(check=lambda call, timer, kernel: judged.append(kernel) or prepare.Check(True))
    monkeypatch.setattr(rounds.Rounds, "bind", lambda *_: None)
    for name in (sketch.timing.baseline, "cublas.sgemm"):
        point = rounds.library_point(name, sketch.problem, Shape.cube(256))
        rounds.Rounds(sweep, print).ensure_checked(point, workspace, None)
    assert baselines.baseline(sketch.timing.baseline).half_sums and judged == [sketch, None]
