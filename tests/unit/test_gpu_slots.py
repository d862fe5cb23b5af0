"""Each stage that measures has a GPU of its own. Real processes contend; only the list of cards is made up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gemmrepro.gpu.slots import CLAIMED, VISIBLE, HostGpu, anonymous, claim

CARDS = [HostGpu("NVIDIA H200", 90, f"GPU-{letter}") for letter in "abc"]
CLAIM = """
import os, sys
from gemmrepro.gpu.slots import HostGpu, anonymous, claim
letters, preferred = (*sys.argv[1:], "", "")[:2]
cards = [HostGpu("NVIDIA H200", 90, f"GPU-{letter}") for letter in letters or "abc"]
claim(cards, preferred=preferred and anonymous(preferred))
card = os.environ["CUDA_VISIBLE_DEVICES"]
print(card, flush=True)
sys.stdin.readline()
"""
"""Claims a GPU of `letters`, or the `preferred` one, prints it, and holds it until told to end."""


class Claims:
    """Starts processes that claim."""

    def __init__(self, folder: Path) -> None:
        self.environment = {name: value for name, value in os.environ.items() if name not in (VISIBLE, CLAIMED)}
        self.environment |= {"TMPDIR": str(folder), "PYTHONPATH": "workflow"}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CLAIM, *arguments],
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process


@pytest.fixture
def claims(tmp_path):
    made = Claims(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def card(process) -> str:
    return process.stdout.readline().strip()


def test_processes_side_by_side_have_a_card_each_and_the_next_waits(claims):
    holders = [claims.start() for _ in CARDS]
    taken = [card(holder) for holder in holders]
    assert sorted(taken) == ["GPU-a", "GPU-b", "GPU-c"]
    late = claims.start()
    assert "waiting for one of the GPUs" in late.stderr.readline()
    holders[1].send_signal(signal.SIGKILL)  # which gives its card back
    holders[1].wait()
    assert card(late) == taken[1]
    holders[0].communicate("end\n")
    assert card(claims.start("", "GPU-z")) == taken[0], "its own card is gone, so it takes another"


@pytest.mark.parametrize(("visible", "third"), [({}, "GPU-c"), ({VISIBLE: "0,1,2"}, "2")])
def test_a_measurement_that_goes_on_waits_for_its_own_card(visible, third, claims):
    holder = claims.start("", "GPU-c", **visible)
    assert card(holder) == third
    again = claims.start("", "GPU-c", **visible)
    assert "waiting for the GPU, which another stage holds" in again.stderr.readline()
    assert card(claims.start(**visible)) != third, "another one is not held up"
    holder.communicate("end\n")
    assert card(again) == third


def test_the_same_number_may_be_another_gpu_in_another_job(claims):
    """Schedulers that hide the other GPUs number each job's own from 0."""
    jobs = [claims.start(letter, CUDA_VISIBLE_DEVICES="0") for letter in "ab"]
    assert [card(job) for job in jobs] == ["0", "0"]


def test_children_use_their_parents_card_without_waiting(claims, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", claims.environment["TMPDIR"])
    environ: dict[str, str] = {}
    claim(CARDS, environ)
    assert environ[VISIBLE] == environ[CLAIMED] == "GPU-a"
    child = claims.start(**{name: environ[name] for name in (VISIBLE, CLAIMED)})
    assert card(child) == "GPU-a"


T4 = HostGpu("NVIDIA T4", 75, "GPU-t")


@pytest.mark.parametrize(
    ("gpus", "visible", "claimed", "restricted"),
    [
        (CARDS[:1], None, "GPU-a", None),
        ([CARDS[0], T4], None, "GPU-a", "GPU-a"),
        ([T4, CARDS[0]], None, "GPU-a", "GPU-a"),
        (CARDS[:1], "0,0", "GPU-a", "0"),
        (CARDS, "GPU-b,1", "GPU-b", "GPU-b"),
        (CARDS, "MIG-2,MIG-2", "MIG-2", "MIG-2"),
    ],
)
def test_cuda_is_told_one_name_of_the_gpu_that_was_claimed(gpus, visible, claimed, restricted, claims, monkeypatch):
    """Of a name that is there twice it would open nothing."""
    monkeypatch.setattr("tempfile.tempdir", claims.environment["TMPDIR"])
    environ = {} if visible is None else {VISIBLE: visible}
    claim(gpus, environ, parent=lambda uuid: "GPU-c")
    assert (environ[CLAIMED], environ.get(VISIBLE)) == (claimed, restricted)


def test_a_cards_name_hides_its_uuid():
    names = {anonymous(each.uuid) for each in CARDS}
    assert len(names) == 3 and all(len(name) == 16 and "GPU" not in name for name in names)
