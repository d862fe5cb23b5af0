"""A run that is killed takes its jobs along, and the next run goes on by itself.

Real runs and real signals; the compiler is a program that sleeps.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import snakemake

TARGET = "results/build/cuda13/ladder.naive.json"


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A folder for PATH, with compilers that say their process and never end."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("nvcc", "cuobjdump", "nvdisasm"):
        (tools / tool).write_text(f"#!/bin/sh\necho $$ >{tools}/new\nmv {tools}/new {tools}/running\nsleep 600\n")
        (tools / tool).chmod(0o755)
    return tools


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Started:
    """A run whose first job is compiling."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.path = folder, f"{tools}:{os.environ['PATH']}"
        with (folder / "output").open("w") as output:
            self.process = subprocess.Popen(
                ["snakemake", "--cores", "1", TARGET],
                cwd=folder,
                env={**os.environ, "PATH": self.path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Tests that run under nohup would pass on that SIGHUP is ignored.
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            )
        running = tools / "running"
        until(lambda: running.exists() or self.process.poll() is not None, "no job has begun")
        assert running.exists(), (folder / "output").read_text()
        self.compiler = int(running.read_text())

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(300)
        until(lambda: not Path(f"/proc/{self.compiler}").exists(), "the job goes on")


def test_the_jobs_of_a_killed_run_end_and_the_next_run_goes_on(folder: Path, compiler: Path) -> None:
    run = Started(folder, compiler)
    other = snakemake(TARGET, folder=folder)
    assert other.returncode != 0 and "cannot be locked" in other.stdout, other.stdout  # the first one lives
    assert "is at work here; make nothing that it makes" in other.stdout
    run.end(signal.SIGKILL)
    assert list(folder.glob(".snakemake/locks/*")) != []
    for tool in ("nvcc", "cuobjdump", "nvdisasm"):
        (compiler / tool).write_text("#!/bin/sh\nexit 1\n")
    following = snakemake(TARGET, folder=folder, PATH=run.path)
    assert f"the last run here (process {run.process.pid}) was killed; its lock is removed" in following.stdout
    assert "LockException" not in following.stdout
    assert "Compiling ladder.naive" in following.stdout or "Compiling the kernels of ladder" in following.stdout
    assert list(folder.glob(".snakemake/locks/*")) == []


def test_a_closed_terminal_ends_a_run_and_its_jobs(folder: Path, compiler: Path) -> None:
    run = Started(folder, compiler)
    run.end(signal.SIGHUP)
    plan = snakemake("--dry-run", TARGET, folder=folder)
    assert plan.returncode == 0 and "LockException" not in plan.stdout, plan.stdout
