"""Reading the profiler's output."""

import pytest

from gemmrepro import counters
from gemmrepro.registry import Shape

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
    assert counters.parse(OUTPUT) == [
        ("0", "dram__bytes.sum", 1234567.0, "byte"),
        ("0", "sm__warps_active.avg.pct_of_peak_sustained_active", 98.25, "%"),
        ("1", "gpu__time_duration.sum", 42.0, "nsecond"),
    ]


def test_output_without_a_table_is_an_error():
    with pytest.raises(ValueError, match="no table"):
        counters.parse("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")


def test_without_ncu_there_are_no_rows_and_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    rows, reason = counters.collect([("ladder.naive", "cuda13", Shape.cube(256))], tmp_path)
    assert rows == [] and "ncu is not on PATH" in reason
    assert counters.collect([], tmp_path) == ([], "")


def test_without_permission_there_are_no_rows_and_the_reason_is_the_profilers(monkeypatch, tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text(
        "#!/bin/sh\n"
        "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access performance counters'\n"
        "exit 1\n"
    )
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    rows, reason = counters.collect([("ladder.naive", "cuda13", Shape.cube(256))], tmp_path)
    assert rows == [] and "ERR_NVGPUCTRPERM" in reason
