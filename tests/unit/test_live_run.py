"""The times of a live run's jobs, from Snakemake's log."""

import json

from campaigns.live_run import Job, in_turn, jobs, scheduled, table
from support import ROOT

LOG = """
[Wed Nov 25 23:31:40 2026]
Job 36: Checking the numbers of crt on the GPU
[Wed Nov 25 23:31:41 2026]
Job 87: Judging the claims on reports/recorded/h200
[Wed Nov 25 23:32:00 2026]
Finished jobid: 36 (Rule: gate_numeric)
Job 22: Measuring crt: sweep --config results/config.json (finished points survive an interruption)
Job 70: Experiments of crt, on the GPU: accuracy
[Wed Nov 25 23:32:10 2026]
Finished jobid: 70 (Rule: experiments_of_crt)
Finished jobid: 87 (Rule: verdicts_on_h200)
[Wed Nov 25 23:33:40 2026]
Finished jobid: 22 (Rule: measure)
Job 23: Measuring crt sustained and in bursts (finished passes survive an interruption)
[Wed Nov 25 23:34:10 2026]
Error in rule measure_regimes:
    message: Measuring crt sustained and in bursts (finished passes survive an interruption)
    jobid: 23
    jobid: 22
""".splitlines()


def test_jobs_on_the_gpu_are_read_and_others_are_not():
    gates, sweep, experiments = (
        Job("gates", "crt", 0, 20),
        Job("sweep", "crt", 20, 120),
        Job("experiments", "crt", 20, 30),
    )
    failed = Job("regimes", "crt", 120, 150, failed=True)
    assert sorted(jobs(LOG), key=str) == sorted([gates, sweep, experiments, failed], key=str)
    assert table(jobs(LOG)).splitlines()[-1] == "| all | 20 | 100 |  | 10 | 130 |"


def test_a_family_is_measured_after_its_gates():
    assert [scheduled(jobs(LOG), gpus) for gpus in (1, 2, 3)] == [130, 120, 120]


def test_the_recorded_runs_are_whole():
    two, four, *in_parts = json.loads((ROOT / "tests/campaigns/recorded/live-run.json").read_text())
    assert (two["gpus"], four["gpus"]) == ("2 NVIDIA H100 80GB HBM3", "4 NVIDIA H200")
    found = [Job(**job) for job in four["jobs"]]
    assert sum(job.end - job.begin for job in found) == 1508
    assert len({job.family for job in found if job.stage == "gates"}) == 11
    assert round(scheduled(found, 2) / 60, 1) == 12.8
    assert [sum(job.get("failed", False) for job in run["jobs"]) for run in in_parts] == [17, 0, 2, 2, 0, 1, 0]
    one, (failed, whole) = in_parts[2:5], in_parts[5:]
    assert (failed["gpus"], failed["seconds"]) == (whole["gpus"], 1502)
    assert (whole["gpus"], whole["seconds"]) == ("1 NVIDIA H200", 1397)
    assert sum(job["end"] - job["begin"] for job in whole["jobs"]) == 1334
    assert len({job["family"] for job in whole["jobs"] if job["stage"] == "gates"}) == 12
    assert {run["gpus"] for run in one} == {"1 NVIDIA H100 80GB HBM3"} and sum(run["seconds"] for run in one) == 1449
    ended = [Job(**job) for run in one for job in run["jobs"] if not job["failed"]]
    assert len({job.family for job in ended if job.stage == "gates"}) == 11
    assert sum(job.end - job.begin for job in ended) == 1265


def test_on_one_gpu_a_job_counts_from_the_end_of_the_one_before_it():
    waiting = [Job("gates", "crt", 0, 20), Job("sweep", "ladder", 5, 70), Job("sweep", "crt", 21, 90)]
    assert [(job.begin, job.end) for job in in_turn(waiting)] == [(0, 20), (20, 70), (70, 90)]
