"""The sweep on a GPU: killed and continued, spoiled and repaired, and refusing what it must not measure."""

import json
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpu_tools import gated, stage, stage_process

from gemmrepro import registry
from gemmrepro.recordings import sweeps as whole

pytestmark = pytest.mark.gpu

SETTINGS = {
    "rounds": 3,
    "interval": 0.001,
    "seconds_per_round": 0.05,
    "samples_per_round": [3, 60],
    "caches": ["cold", "warm"],
    "sizes": {"ladder": [256, 512]},
    "counters": {},
}


SWEPT = [
    *("ladder.naive", "ladder.coalesced", "ladder.smem"),
    *("ladder.blocktile_1d", "ladder.vectorized", "ladder.warptile"),
]
"""The other kernels of the family count as failed at the gate, which is quicker."""


@pytest.fixture(scope="module")
def world(session, built, toolkit, tmp_path_factory) -> Path:
    """A folder with a configuration, builds and gates: what a sweep of the kernels in SWEPT starts from."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "build").symlink_to(built)
    (folder / "config.json").write_text(json.dumps({"sweep": {**SETTINGS, "toolkits": [toolkit]}}))
    with ThreadPoolExecutor(len(SWEPT)) as pool:
        list(pool.map(lambda kernel: gated(kernel, toolkit, built, folder / "gates"), SWEPT))
    for kernel in registry.kernels("ladder"):
        if kernel.id not in SWEPT:
            (folder / "gates" / f"{kernel.id}.json").write_text(json.dumps({"passed": False, "toolkits": {}}))
    return folder


def test_a_killed_sweep_continues_and_loses_nothing(world):
    words = ["--family", "ladder", "--config", world / "config.json", "--build", world / "build"]
    words += ["--gates", world / "gates", "--journal", world / "journal", "--out", world / "out"]
    started = stage_process("sweep", *words)
    process = subprocess.Popen(**started, stderr=subprocess.PIPE, text=True)
    journal = world / "journal"
    deadline = time.monotonic() + 120
    while len(list(journal.glob("*.r*.json"))) < 25 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = {path.name: path.read_text() for path in journal.glob("*.json")}
    finished = [name for name in before if ".check." not in name and ".r" in name]
    assert len(finished) >= 25
    for text in before.values():
        json.loads(text)  # whole, all of them
    assert not (world / "out").exists()

    answer = stage("sweep", *words)
    assert answer.returncode == 0, answer.stderr
    assert f"{len(finished)} of " in answer.stderr
    after = {path.name: path.read_text() for path in journal.glob("*.json")}
    # What was timed stays. A check of the operands may say more at the end: that the kernel's times were confirmed.
    assert set(before) <= set(after) and all(after[name] == before[name] for name in finished)
    table = whole.read_summary(world / "out")
    # the kernels and cuBLAS at two sizes, cold and warm
    assert len(table) == (len(SWEPT) + 1) * 2 * 2
    assert all(row["rounds"] == "3" and row["status"] == "current" for row in table)
    for row in table:
        if row["kernel"] == "cublas.sgemm":
            # measured against itself
            assert 0.9 < float(row["ratio"]) < 1.1
            assert float(row["ratio_ci_low"]) <= 1.02 and float(row["ratio_ci_high"]) >= 0.98
        if row["kernel"] == "ladder.naive":
            assert float(row["ratio"]) < 0.5
        if row["baseline"]:
            assert 0 < float(row["err_scaled_max"]) < 100
