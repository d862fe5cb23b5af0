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


def test_modes_take_turns_and_one_that_fails_is_left_out(tmp_path):
    training = part("training.py")
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    training.__file__ = str(child)
    subjects = [SimpleNamespace(kernel=name) for name in training.SUBJECTS]
    left = {}
    context = SimpleNamespace(
        parameters={"batch": 64, "warm_up": 10},
        settings={"modes": list(training.MODES), "iterations": 12, "rounds": 3, "limit_s": 8, "together": True},
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
        assert (row["iterations"], row["beside"]) == (12, len(training.MODES) - 1)
        assert (row["first_s"], row["warm_s"], row["slow_steps"], row["warned"]) == (8.0, 12.0, 1, 1)
        assert row["total_s"] == pytest.approx(500 * 3 * 0.1 / 12)  # three rounds of four steps
    parts = [row for row in found if row["kernel"] == "torch.eager" and row["part"] == "backward"]
    assert [(row["iteration"], row["seconds"]) for row in parts] == [(1, 4.0), (2, 1.0), (3, 1.0)]
    assert len(found) == 2 * (1 + 3 * 4)
    assert rows["torch.eager"]["step_ms"] == 2 * rows["torch.compile.reduce-overhead"]["step_ms"]
    assert "not warm in time" in left["torch.compile.default"]
    assert "out of memory" in left["torch.compile.max-autotune"]
