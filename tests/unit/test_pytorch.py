"""The family `pytorch` without PyTorch: its kernel on the CPU, its gate, and how its experiments take their samples."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from test_kernels import compile_for_cpu, run_on_cpu

from gemmrepro import experiments, registry
from gemmrepro.gates import pointwise
from gemmrepro.operations import Shape

KERNELS = registry.kernels("pytorch")
LENGTHS = (1, 3, 4, 5, 4095, 4096, 4099, 10_001)


@pytest.fixture(scope="module", params=KERNELS, ids=lambda kernel: kernel.id)
def program(request, tmp_path_factory, precompiled):
    return request.param, compile_for_cpu(request.param, tmp_path_factory.mktemp("gelu"), precompiled)


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


@needs_compiler
@pytest.mark.parametrize("law", pointwise.DISTRIBUTIONS)
def test_a_kernel_takes_any_length_and_passes_its_gate(program, law):
    kernel, program = program
    for n in LENGTHS:
        x = pointwise.draw(law, n, 3)
        got = run_on_cpu(program, kernel, Shape(1, n, 1), 1, 0, (x, np.zeros(n), np.full(n, np.nan)))[0]
        verdict = pointwise.judge(x, got)
        assert verdict.passed, f"{n}: {verdict.message}"


@needs_compiler
@pytest.mark.parametrize(
    ("text", "replacement"),
    [
        ("threadIdx.x;\n    if (blockIdx", "threadIdx.x + 1;\n    if (blockIdx"),  # the tail begins too late
        ("u * THREADS] = make", "u] = make"),
    ],
)
def test_a_planted_bug_fails_the_gate(tmp_path, precompiled, text, replacement):
    kernel = registry.kernel("pytorch.gelu_four")  # with loads that can be taken for one another
    program = compile_for_cpu(kernel, tmp_path, precompiled, (text, replacement, 0))
    failed = []
    for n in LENGTHS:
        x = pointwise.draw("normal", n, 3)
        got = run_on_cpu(program, kernel, Shape(1, n, 1), 1, 0, (x, np.zeros(n), np.full(n, np.nan)))[0]
        failed.append(not pointwise.judge(x, got).passed)
    assert any(failed)


def part(name: str):
    return experiments.beside("pytorch", name)


class Clock:
    """A clock that only moves when something takes time, in seconds."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    thread_time = perf_counter


def test_batches_take_turns_and_are_means_of_calls():
    module, order = part("gelu_cpu.py"), []
    module.time = clock = Clock()

    def call(name, seconds):
        order.append(name)
        clock.now += seconds

    calls = {"a": lambda: call("a", 0.001), "b": lambda: call("b", 0.002)}
    found = module.batches(calls, 0.004, 0.02, 5)
    assert found["a"] == pytest.approx([1000.0] * 5) and found["b"] == pytest.approx([2000.0] * 5)
    assert order == list("aaa" + "bbb" + "aaaabb" * 5)  # the first calls say how many make a batch
    by_host = module.batches({"a": calls["a"]}, 0.004, 0.0, 3, lambda: 2 * clock.now)
    assert by_host["a"] == pytest.approx([2000.0] * 3)  # the clock that is given


def function_of(order, first, second, later, profiled=(1, 1, 0, 0, 0)):
    """A round of `gelu_order`: times of the first two calls, and of later ones, in µs; the eager formula takes 300."""
    return order.Round([first, second, 110.0, later, later], profiled, [later, later, 1.1 * later], [300.0] * 3)


def test_first_calls_are_medians_over_functions_with_their_range():
    order = part("gelu_order.py")
    firsts = (900.0, 1000.0, 700.0, 2300.0, 950.0, 1100.0, 980.0)
    row = order.cells([function_of(order, first, 20_000.0 + first, 100.0) for first in firsts])
    assert (row["first_us"], row["first_low_us"], row["first_high_us"]) == (980.0, 700.0, 2300.0)
    assert (row["first_of_median"], row["first_of_median_low"], row["first_of_median_high"]) == (9.8, 7.0, 23.0)
    assert (row["second_of_median"], row["second_of_median_low"], row["second_of_median_high"]) == (209.8, 207, 223)
    # Ten times the median or more: the second call of all seven functions, and the first one of three of them.
    assert (row["slow_calls"], row["slow_calls_low"], row["slow_calls_high"]) == (1, 1, 2)
    assert (row["median_us"], row["gain"]) == (100.0, pytest.approx(3.0))
    assert row["ci_low_us"] <= 100.0 < row["ci_high_us"]
    declared = {column.name for column in experiments.experiment("pytorch", "gelu_order").columns}
    assert set(row) == declared - {"order", "elements", "rounds"}


CHILD = """
import json, sys, time
mode = sys.argv[sys.argv.index("--mode") + 1]
if mode == "default":
    time.sleep(60)
if mode == "max-autotune":
    sys.exit("out of memory")
part = {"forward": 0.5, "backward": 1.0, "backward, not synchronised": 0.25, "step": 2.0}
parts = [{key: 4 * value for key, value in part.items()}, part, part]
warm = dict(parts=parts, launches=5, graphs=None, graph_breaks=None, recompiles=None, first_loss=7.0, last_loss=6.0)
print("not enough SMs", file=sys.stderr)
print(json.dumps(warm), flush=True)
for line in sys.stdin:
    step = 4.0 if mode == "eager" else 2.0
    print(json.dumps(dict(times_ms=[step] * int(line), total_s=0.1, peak_bytes=2e9)), flush=True)
"""


@pytest.mark.parametrize(("together", "few"), [(True, False), (False, True)])
def test_modes_take_turns_and_one_that_fails_is_left_out(tmp_path, together, few):
    training = part("training.py")
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    training.__file__ = str(child)
    subjects = [SimpleNamespace(kernel=name) for name in training.SUBJECTS]
    modes = ("eager", "reduce-overhead") if few else training.MODES
    left = {}
    context = SimpleNamespace(
        parameters={"batch": 64, "warm_up": 10},
        settings={"modes": list(modes), "iterations": 12, "rounds": 3, "limit_s": 8, "together": together},
        subjects=subjects,
        row=lambda subject, **cells: {"kernel": subject.kernel, **cells},
        leave_out=lambda subject, reason: left.update({subject.kernel: reason}),
    )
    found = list(training.on_gpu(context, {"batch": 64}))
    rows = {row["kernel"]: row for row in found if row["part"] == "steady"}
    assert set(rows) == {"torch.eager", "torch.compile.reduce-overhead"}
    declared = {column.name for column in experiments.experiment("pytorch", "training").columns}
    for row in found:
        assert set(row) == declared | {"kernel"}
    for row in rows.values():
        assert set(row) == declared | {"kernel"}
        assert (row["iterations"], row["beside"]) == (12, len(modes) - 1 if together else 0)
        assert (row["first_s"], row["warm_s"], row["slow_steps"], row["warned"]) == (8.0, 12.0, 1, 1)
        assert row["total_s"] == pytest.approx(500 * 3 * 0.1 / 12)  # three rounds of four steps
    parts = [row for row in found if row["kernel"] == "torch.eager" and row["part"] == "backward"]
    assert [(row["iteration"], row["seconds"]) for row in parts] == [(1, 4.0), (2, 1.0), (3, 1.0)]
    assert len(found) == 2 * (1 + 3 * 4)
    assert rows["torch.eager"]["step_ms"] == 2 * rows["torch.compile.reduce-overhead"]["step_ms"]
    assert ("does not name it" if few else "not warm in time") in left["torch.compile.default"]
    assert ("does not name it" if few else "out of memory") in left["torch.compile.max-autotune"]
