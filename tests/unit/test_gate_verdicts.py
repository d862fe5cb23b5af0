"""Verdicts of the numerical gate: which binaries are judged, what is filed, and what a verdict may be used for."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from numpy_cupy import NumpyCupy
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.gates import numeric, stage
from gemmrepro.gates.gate import Case, Gate, Judged, Verdict
from gemmrepro.gates.numeric import Wanted
from gemmrepro.gates.operations import Gates, Memory, gate_key, needed_memory
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operations import Shape
from gemmrepro.registry import card

NAIVE = registry.kernel("ladder.naive")
WANTED = Wanted.parse("ladder.naive")
MACHINE = {"name": "G", "driver": "D", "sm_count": 132, "power_cap_w": 700.0}
GPU = SimpleNamespace(describe=lambda: MACHINE)


class Says(Gate):
    """A gate of two cases, of which the second fails where it is told to."""

    message = ""
    broken = ""

    def cases(self, session, kernel, launch, seeds):
        launch("operands")
        case = Case(Shape.cube(8), 1.0, 0.0, "normal", seeds[0])
        yield Judged(case, Verdict(True, 3.0, 0.0, ""), 2.0**-20)
        if self.broken:
            raise UserError(self.broken)
        yield Judged(case, Verdict(not self.message, None, None, self.message), 2.0**-20)

    def judge(self, operands, reference, kernel=None):
        raise NotImplementedError


SESSION = SimpleNamespace(gpu=GPU, sync=lambda: None)


@pytest.fixture
def gates(monkeypatch) -> Gates:
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())
    monkeypatch.setattr(Says, "message", "")
    monkeypatch.setattr(Says, "broken", "")
    launched: list[str] = []
    bind = lambda operands, part: lambda: launched.append(part.id)  # noqa: E731

    def built(session, kernel, build: Path, toolkit: str):
        if toolkit == "cuda12":
            raise UserError("it has no code for this GPU")
        return SimpleNamespace(kernel=kernel, build_key="bbbb", bind=bind)

    monkeypatch.setattr(Loaded, "built", built)
    return Gates({"gemm": Says})


def test_every_binary_that_was_built_is_judged_or_says_why_not(gates, tmp_path):
    write_build(tmp_path, NAIVE.id, "cuda12", "aaaa")
    write_build(tmp_path, NAIVE.id, "cuda13", "bbbb")
    found = numeric.gate(SESSION, WANTED, tmp_path, [7], gates)
    assert (found["kernel"], found["gpu"], found["driver"]) == (NAIVE.id, "G", "D")
    assert found["toolkits"]["cuda12"] == {
        "status": "not run",
        "build_key": "aaaa",
        "gate_key": gate_key(NAIVE, "aaaa"),
        "reason": "it has no code for this GPU",
        "cases": [],
    }
    judged = found["toolkits"]["cuda13"]
    assert (judged["status"], judged["reason"], len(judged["cases"])) == ("passed", "", 2)
    assert (judged["build_key"], judged["gate_key"]) == ("bbbb", gate_key(NAIVE, "bbbb"))
    assert "cuda13 passed    2 cases, worst" in numeric.summary_line(found)
    assert "it has no code for this GPU" in numeric.summary_line(found)


def test_only_the_wanted_binaries_are_judged_and_none_is_a_verdict_too(gates, tmp_path):
    for toolkit in ("cuda12", "cuda13"):
        write_build(tmp_path, NAIVE.id, toolkit, "bbbb")
    for text, judged in (("ladder.naive=cuda13", ["cuda13"]), ("ladder.naive=", [])):
        assert list(numeric.gate(SESSION, Wanted.parse(text), tmp_path, [7], gates)["toolkits"]) == judged
    assert str(Wanted.parse("ladder.naive")) == "ladder.naive=cuda12,cuda13"
    with pytest.raises(UserError, match=r"cutile\.matmul_fp16 is not built by cuda12; choose among cuda13"):
        Wanted.parse("cutile.matmul_fp16=cuda12")


def test_a_wrong_case_fails_the_binary_and_so_does_one_that_breaks_the_gpu(gates, tmp_path, monkeypatch):
    write_build(tmp_path, NAIVE.id, "cuda13", "bbbb")
    monkeypatch.setattr(Says, "message", "wrong")
    judged = numeric.gate(SESSION, WANTED, tmp_path, [7], gates)["toolkits"]["cuda13"]
    assert judged["status"] == "failed" and judged["reason"] == "1 of 2 cases failed; 8x8x8 normal: wrong"
    monkeypatch.setattr(Says, "broken", "the launch failed")
    judged = numeric.gate(SESSION, WANTED, tmp_path, [7], gates)["toolkits"]["cuda13"]
    assert (judged["status"], judged["reason"], len(judged["cases"])) == ("failed", "the launch failed", 1)


def test_a_case_without_memory_is_no_failure(gates, tmp_path, monkeypatch):
    def fail(self, *_):
        raise MemoryError("Unable to allocate 10.7 GiB for an array")
        yield

    monkeypatch.setattr(Says, "cases", fail)
    write_build(tmp_path, NAIVE.id, "cuda13", "bbbb")
    judged = numeric.gate(SESSION, WANTED, tmp_path, [7], gates)["toolkits"]["cuda13"]
    assert (judged["status"], judged["reason"], judged["cases"]) == ("not run", "needs 10.7 GiB", [])


def test_processes_share_what_memory_is_free_and_what_never_fits_is_left_out():
    copy = needed_memory(registry.kernel("cute.copy_vectors"))
    assert 4 << 30 < copy[0] < 5 << 30 and copy[1] > 10 << 30
    assert needed_memory(NAIVE)[0] < 1 << 30
    small = Memory(3 << 30, None)
    assert re.fullmatch(r"needs 4\.\d GiB, 3\.0 GiB are free", small.lacks(copy))
    assert "GiB of the host's memory, 8.0 GiB are free" in Memory(None, 8 << 30).lacks(copy)
    room, running, most = Memory(2 * copy[0], None), [], []

    def judge(_):
        with room.taken(copy):
            running.append(1)
            most.append(len(running))
            running.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(judge, range(64)))
    assert max(most) <= 2 and not Memory(None, None).lacks(copy)


def judged_as(status: str, toolkit: str = "cuda13", build: str = "bbbb", gate: str | None = None) -> dict:
    gate = gate_key(NAIVE, build) if gate is None else gate
    verdict = {"status": status, "build_key": build, "gate_key": gate, "reason": None, "cases": []}
    return {"kernel": NAIVE.id, "gpu": "G", "toolkits": {toolkit: verdict}}


@pytest.mark.parametrize(("sms", "status"), [(114, "passed"), (132, "stale")])
def test_a_verdict_is_of_the_card_that_gave_it(sms: int, status: str) -> None:
    kernel = registry.kernel("hopper.persistent")
    with card.of(card.ANOTHER):
        verdict = judged_as("passed", gate=gate_key(kernel, "bbbb")) | {"sm_count": sms, "power_cap_w": 350.0}
    found = stage.numeric_verdict(kernel, "cuda13", "bbbb", (verdict, "recorded", ""))
    assert found["status"] == status


@pytest.mark.parametrize(
    ("source", "verdict", "status", "says"),
    [
        ("live", judged_as("passed"), "passed", ""),
        ("live", judged_as("failed"), "failed", ""),
        ("live", judged_as("passed", toolkit="cuda12"), "not measured", "this run measures nothing with this binary"),
        ("recorded", judged_as("passed", toolkit="cuda12"), "not run", "no verdict for cuda13"),
        ("live", judged_as("passed", build="cccc"), "stale", "build cccc was judged, today's is bbbb"),
        ("live", judged_as("passed", gate="0" * 16), "stale", "its launch or its gate has changed since"),
        ("live", judged_as("not run", build="cccc", gate="0" * 16), "not run", ""),
        ("none", None, "not run", "no GPU"),
    ],
)
def test_a_verdict_counts_for_the_run_that_was_judged(source, verdict, status, says):
    found = stage.numeric_verdict(NAIVE, "cuda13", "bbbb", (verdict, source, "no GPU" * (not verdict)))
    assert (found["status"], found["source"]) == (status, source) and says in found["reason"]


def test_unknown_toolkits_and_recordings_that_are_none_are_named(tmp_path):
    write_build(tmp_path / "build", NAIVE.id, "cuda13", "bbbb")
    with pytest.raises(UserError, match="there is no toolkit 'cuda11'; known toolkits: cuda12, cuda13"):
        stage.gate(NAIVE, tmp_path / "build", ["cuda13", "cuda11"], None, None)
    lone = registry.kernel("cutile.matmul_fp16")
    with pytest.raises(UserError, match=r"is built by cuda13 and by none of cuda12; name one of its toolkits"):
        stage.gate(lone, tmp_path / "build", ["cuda12"], None, None)
    missing = f"no recorded gates of family ladder on {tmp_path.name}"
    assert stage.numeric_source(NAIVE, None, tmp_path) == (None, "recorded", missing)
    (path := tmp_path / "ladder/gates.json").parent.mkdir()
    for text, says in (("[1]", r"are corrupt \(no object\)"), ('{"ladder.naive": {"tool', "is corrupt")):
        path.write_text(text)
        with pytest.raises(UserError, match=rf"the recorded gates .* {says}"):
            stage.numeric_source(NAIVE, None, tmp_path)
    path.write_text('{"ladder.naive": {"gpu": "G"}}')
    assert stage.numeric_source(NAIVE, None, tmp_path)[:2] == ({"gpu": "G"}, "recorded")
