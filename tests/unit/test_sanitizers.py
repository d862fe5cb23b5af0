"""The campaign of compute-sanitizer without a GPU: what is run first, what an answer means, and how it continues."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from campaigns import sanitizers
from support import ROOT
from synthetic import write_build

from gemmrepro import registry

CLEAN = "launched {}\n========= ERROR SUMMARY: 0 errors\n"


def test_a_kernels_shapes_have_tails_where_it_takes_them() -> None:
    for kernel in registry.kernels():
        shapes = sanitizers.shapes_of(kernel)
        assert shapes and all(kernel.takes(shape) for shape in shapes), kernel.id
        assert len(shapes) == 2 or kernel.compute.op == "ceiling_flops"


@pytest.mark.parametrize(
    ("code", "said", "outcome"),
    [
        (0, CLEAN.format("a"), "clean"),
        (0, "launched a\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", "clean"),
        (99, "launched a\n========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n", "found"),
        (99, "launched a\n========= ERROR SUMMARY: 12 errors\n", "found"),
        (0, "========= ERROR SUMMARY: 0 errors\n", "broken"),
        (0, "launched a\n", "broken"),
        (1, CLEAN.format("a"), "broken"),
        (None, "", "did not end"),
    ],
)
def test_only_a_launch_and_a_count_of_nothing_is_clean(code, said, outcome) -> None:
    assert sanitizers.verdict(code, said, ["a"])["outcome"] == outcome


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compute-sanitizer that notes its command, and finds something in kernels whose name ends in _two."""
    script = tmp_path / "bin/compute-sanitizer"
    script.parent.mkdir()
    script.write_text(
        f"""#!/usr/bin/env bash
echo "$*" >> {tmp_path}/commands
for word in "$@"; do case $word in *:cuda13:*) echo "launched $word";; esac; done
case "$*" in *gelu_two:*) echo "========= ERROR SUMMARY: 1 error"; exit 99;; esac
echo "========= ERROR SUMMARY: 0 errors"
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return tmp_path / "commands"


def test_what_was_found_is_kept_by_kernel_and_not_run_again(tool, tmp_path, capsys) -> None:
    names = ("pytorch.gelu", "pytorch.gelu_two", "memory.reduce_wide")
    for name in names:
        write_build(tmp_path / "build", name, "cuda13", f"key of {name}", archs=("sm_90",))
    arguments = argparse.Namespace(
        build=tmp_path / "build", out=tmp_path / "out.json", seconds=60.0, kernels=["*"], toolkits=["cuda13"]
    )
    arguments.tools, arguments.capability, arguments.jobs, arguments.batch = ["memcheck"], 90, 1, 8
    assert sanitizers.run(arguments) == 1
    found = json.loads(arguments.out.read_text())["found"]
    assert {entry.split(":")[0]: one["outcome"] for entry, one in found.items()} == {
        "pytorch.gelu": "clean",
        "pytorch.gelu_two": "found",
        "memory.reduce_wide": "clean",
    }
    commands = tool.read_text().splitlines()
    assert len(commands) == 4, "all at once, and then one by one"
    assert commands[0].index("memory.reduce_wide") < commands[0].index("pytorch.gelu"), "those of FIRST come first"
    assert sanitizers.run(arguments) == 1
    assert tool.read_text().splitlines() == commands
    assert "memcheck  clean       2" in capsys.readouterr().out


RECORDED = json.loads((ROOT / "tests/campaigns/recorded/sanitizers-h200.json").read_text())


def test_the_recorded_outcome_is_clean_but_for_one_known_warning() -> None:
    """Racecheck takes the making of an mbarrier by thread 0 for another thread's (tests/gpu/test_gpu_gate.py)."""
    known = {("ladder.cut", "racecheck"), ("ladder.pinned", "racecheck"), ("ladder.tma", "racecheck")}
    found = set()
    for kernel, toolkits in RECORDED.items():
        for judged in toolkits.values():
            assert set(judged) == {"build_key", "shapes", *sanitizers.TOOLS}, kernel
            found |= {(kernel, tool) for tool in sanitizers.TOOLS if judged[tool] != "clean"}
    assert found == known
    said = [judged["racecheck"] for name, _ in known for judged in RECORDED[name].values()]
    assert all("(0 errors, " in " ".join(words) for words in said if words != "clean")


def test_every_family_that_a_gpu_has_gated_is_among_the_recorded() -> None:
    gated = {path.parent.name for path in ROOT.glob("reports/recorded/h200/*/gates.json")}
    assert gated <= set(registry.family_names())
    assert {name.split(".")[0] for name in RECORDED} == gated
