"""The shipped profile on a real SLURM of one node, with containers: who asks for a GPU, and that the results come.

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

# For a cluster of this size: no accounting, so squeue is asked, and soon. Other tests may keep its one node busy: more
# attempts than the profile's second.
QUICK = (
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    *("--seconds-between-status-checks", "1", "--latency-wait", "60"),
    *("--retries", "3"),
)


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
