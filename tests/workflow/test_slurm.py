"""The shipped profile on a real SLURM of one node, with containers: who asks for a GPU, and that the results come.

Two jobs that ask for a GPU run side by side, each with its own.

SLURM is installed and runs in an overlay; nothing of it is left on the machine.
"""

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from overlay import Overlay, Unavailable
from support import ROOT

# For a cluster of this size: no accounting, so squeue is asked, and soon. Other tests may keep its one node busy: more
# attempts than the profile's second.
QUICK = (
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    *("--seconds-between-status-checks", "1", "--latency-wait", "60"),
    *("--retries", "3"),
)

# Each job waits for the other one, and stays until that has seen it.
TWO_JOBS = """
rule all:
    input:
        "a.txt",
        "b.txt",

rule on_gpu:
    output:
        "{job}.txt",
    resources:
        gpu=1,
    shell:
        "trap 'rm -f {wildcards.job}.here' EXIT; touch {wildcards.job}.here;"
        " for _ in $(seq 1000); do [ -e a.here ] && [ -e b.here ] && break; sleep 0.1; done;"
        " [ -e a.here ]; [ -e b.here ]; echo $CUDA_VISIBLE_DEVICES >{output}; sleep 2"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    try:
        with Overlay(tmp_path_factory.mktemp("slurm") / "overlay") as overlay:
            slurm.start(overlay, os.cpu_count() or 1)
            yield overlay
    except Unavailable as reason:
        pytest.skip(str(reason))


def said(folder: Path) -> str:
    """What each job of a cluster's run printed, by its log: Snakemake only says that one failed."""
    logs = sorted((folder / ".snakemake/slurm_logs").rglob("*.log"))
    return "".join(f"--- {log.relative_to(folder)}\n{short(log.read_text(errors='replace'))}\n" for log in logs)


def short(log: str) -> str:
    """The last lines of `log`, without those that list a family's files."""
    return "\n".join([line for line in log.splitlines() if len(line) < 400][-60:])


@pytest.mark.containers
@pytest.mark.timeout(1200)
def test_the_shipped_profile_runs_gpu_jobs_and_builds_on_a_cluster(finished: Path, cluster: Overlay) -> None:
    """A rung is edited: its builds and its gate are jobs without a GPU. The check of cuTile asks for one."""
    source = finished / "kernels/ladder/1_naive.cu"
    source.write_text(source.read_text() + "\nstatic_assert(sizeof(float) == 4);\n")
    gate, check = finished / "results/gates/ladder.naive.json", finished / "results/just_in_time/cutile.json"
    check.unlink(missing_ok=True)
    before = gate.stat().st_mtime_ns

    run = cluster.call(
        *("snakemake", "--profile", "profiles/slurm", "--max-threads", str(os.cpu_count()), *QUICK),
        *("results/gates/ladder.naive.json", "results/just_in_time/cutile.json"),
        cwd=finished,
    )
    jobs = slurm.jobs(cluster, finished)

    states = [f"{job['Comment']}: {job['JobState']} ({job['Reason']})" for job in jobs]
    assert run.returncode == 0, "\n".join([said(finished), slurm.logs(cluster), run.stdout[-3000:], *states])
    if failed := [job["JobId"] for job in jobs if job["JobState"] != "COMPLETED"]:
        warnings.warn(f"SLURM jobs failed and were run again: {states}\n{said(finished)}", stacklevel=1)
    jobs = [job for job in jobs if job["JobId"] not in failed]
    on_gpu = {job["Comment"] for job in jobs if "gpu" in job.get("TresPerJob", "") + job.get("TresPerNode", "")}
    others = {job["Comment"] for job in jobs} - on_gpu
    assert [name for name in on_gpu if "just_in_time_check" not in name] == []
    assert len(on_gpu) == 1
    assert len([name for name in others if name.startswith("rule_build_")]) == 2
    assert [name for name in others if name.startswith("rule_gate")] != []
    assert gate.stat().st_mtime_ns > before
    assert {verdict["status"] for verdict in json.loads(check.read_text()).values()} == {"skipped"}  # no real GPU


@pytest.mark.containers
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two jobs side by side need two cores")
@pytest.mark.timeout(600)
def test_two_gpu_jobs_run_side_by_side_each_with_a_gpu_of_its_own(cluster: Overlay, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(TWO_JOBS)
    run = cluster.call("snakemake", "--profile", str(ROOT / "profiles/slurm"), *QUICK, cwd=tmp_path)
    assert run.returncode == 0, "\n".join([said(tmp_path), slurm.logs(cluster), run.stdout[-3000:]])
    ended = [job for job in slurm.jobs(cluster, tmp_path) if job["JobState"] == "COMPLETED"]
    assert [
        job["Comment"] for job in ended if "gpu" not in job.get("TresPerJob", "") + job.get("TresPerNode", "")
    ] == []
    assert len(ended) == 2
    assert {(tmp_path / name).read_text() for name in ("a.txt", "b.txt")} == {"0\n", "1\n"}
