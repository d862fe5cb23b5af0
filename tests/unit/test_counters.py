"""Reading the profiler's output."""

import csv
import io

import pytest
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.measure import profiler
from gemmrepro.operations import Shape

OUTPUT = """==PROF== Connected to process 7
==PROF== Profiling "naive": 0%....100% - 3 passes
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","naive","dram__bytes.sum","byte","1,234,567"
"0","7","naive","sm__warps_active.avg.pct_of_peak_sustained_active","%","98.25"
"1","7","smem","dram__bytes.sum","byte","n/a"
"1","7","smem","gpu__time_duration.sum","nsecond","42"
==PROF== Disconnected
"""


def test_values_are_read_with_their_units_and_launches():
    assert profiler.parse(OUTPUT) == [
        ("0", "dram__bytes.sum", 1234567.0, "byte"),
        ("0", "sm__warps_active.avg.pct_of_peak_sustained_active", 98.25, "%"),
        ("1", "gpu__time_duration.sum", 42.0, "nsecond"),
    ]


def test_output_without_a_table_is_an_error():
    with pytest.raises(ValueError, match="no table"):
        profiler.parse("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")


def test_without_ncu_there_are_no_rows_and_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    rows, reason = profiler.collect([("ladder.naive", "cuda13", Shape.cube(256))], tmp_path)
    assert rows == [] and "ncu is not on PATH" in reason
    assert profiler.collect([], tmp_path) == ([], "")


def test_without_permission_there_are_no_rows_and_the_reason_is_the_profilers(monkeypatch, tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text(
        "#!/bin/sh\n"
        "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access performance counters'\n"
        "exit 1\n"
    )
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    rows, reason = profiler.collect([("ladder.naive", "cuda13", Shape.cube(256))], tmp_path)
    assert rows == [] and "ERR_NVGPUCTRPERM" in reason


TIME, BYTES, SHARE = "gpu__time_duration.sum", "lts__t_bytes.sum", "lts__t_sector_hit_rate.pct"
BLOCKS = "launch__occupancy_limit_registers"


def table(*launches):
    """ncu's table of launches: their names, and values by metric."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
    for number, (name, values) in enumerate(launches):
        writer.writerows([number, 7, name, metric, "u", value] for metric, value in values.items())
    return f"==PROF== Connected\n{out.getvalue()}==PROF== Disconnected\n"


def test_launches_of_a_run_are_told_as_one():
    """What is counted is added up, what is a share is a mean by time, what is of a launch is of the longest."""
    split = profiler.Reading(
        "split", {TIME: (10.0, "ns"), BYTES: (100.0, "byte"), SHARE: (90.0, "%"), BLOCKS: (4.0, "")}
    )
    product = profiler.Reading("product", {TIME: (30.0, "ns"), BYTES: (700.0, "byte"), SHARE: (50.0, "%")})
    found = profiler.combined([split, product])
    assert found.name == "product"
    assert found.values == {TIME: (40.0, "ns"), BYTES: (800.0, "byte"), SHARE: (60.0, "%")}
    alone = profiler.combined([split])
    assert alone.values == split.values


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    """A profiler that prints one table for single launches and another for runs, and keeps its arguments."""

    def make(single, runs):
        for name, text in (("single", single), ("runs", runs)):
            (tmp_path / name).write_text(text)
        program = tmp_path / "ncu"
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
            f'case "$*" in *"--runs "*) cat {tmp_path}/runs;; *) cat {tmp_path}/single;; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        return tmp_path

    return make


def built(folder, *names):
    for name in names:
        write_build(folder, name, "cuda13", f"key of {name}")


RUN, ONE = ("crt.fused", "cuda13", Shape.cube(256)), ("ladder.naive", "cuda13", Shape.cube(256))
STEPS = [step.entry for step in registry.kernel("crt.fused").run.steps]
END = (profiler.MARK, {TIME: "1"})


def test_every_launch_of_a_run_counts_and_single_launches_are_read_as_before(ncu, tmp_path):
    run = [(name, {TIME: "2", BYTES: "1,000"}) for name in STEPS]
    single = [("naive", {TIME: "5", BYTES: "7"})]
    folder = ncu(table(*single), table(*run, END, *run, ("a_librarys", {TIME: "3", BYTES: "500"}), END))
    built(folder, "crt.fused", "crt.library", "ladder.naive")
    library = ("crt.library", *RUN[1:])
    rows, reason = profiler.collect([RUN, ONE, library], folder)
    assert reason == ""
    found = {(row.kernel, row.metric): row.value for row in rows}
    assert found == {
        **{("crt.fused", TIME): 2 * len(STEPS), ("crt.fused", BYTES): 1000 * len(STEPS)},
        **{("crt.library", TIME): 2 * len(STEPS) + 3, ("crt.library", BYTES): 1000 * len(STEPS) + 500},
        **{("ladder.naive", TIME): 5, ("ladder.naive", BYTES): 7},
    }
    assert {row.build_key for row in rows if row.kernel == "crt.fused"} == {"key of crt.fused"}
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert "regex:^(naive)$" in first and "--profile-from-start" not in first
    assert "--profile-from-start off" in second and "regex" not in second
    assert second.endswith("--launch crt.fused:cuda13:256x256x256 crt.library:cuda13:256x256x256")


def test_launches_that_are_fewer_than_asked_for_have_no_rows(ncu):
    folder = ncu(table(("naive", {TIME: "5"})), "")
    built(folder, "ladder.naive", "ladder.smem")
    rows, reason = profiler.collect([ONE, ("ladder.smem", *ONE[1:])], folder)
    assert rows == [] and "ncu profiled 1 launches of 2" in reason


def test_without_a_table_of_runs_there_are_none_of_them(ncu):
    folder = ncu(table(("naive", {TIME: "5"})), "==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    built(folder, "crt.fused", "ladder.naive")
    rows, reason = profiler.collect([RUN, ONE], folder)
    assert {row.kernel for row in rows} == {"ladder.naive"} and "ERR_NVGPUCTRPERM" in reason


def test_a_metric_that_this_profiler_does_not_know_is_left_out(ncu, monkeypatch):
    folder = ncu(table(("naive", {TIME: "5"})), "")
    program = folder / "ncu"
    refusal = f"==ERROR== Failed to find metric {SHARE}"
    program.write_text(f'#!/bin/sh\ncase "$*" in *{SHARE}*) echo "{refusal}";; *) cat {folder}/single;; esac\n')
    built(folder, "ladder.naive")
    rows, reason = profiler.collect([ONE], folder)
    assert [(row.metric, row.value) for row in rows] == [(TIME, 5)] and reason == ""


def test_runs_that_cannot_be_told_apart_have_no_rows(ncu):
    folder = ncu(table(("naive", {TIME: "5"})), table(*[(name, {TIME: "2"}) for name in STEPS]))
    built(folder, "crt.fused", "ladder.naive")
    rows, reason = profiler.collect([RUN, ONE], folder)
    assert {row.kernel for row in rows} == {"ladder.naive"} and "0 runs of 1" in reason
