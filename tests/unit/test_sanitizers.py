"""What compute-sanitizer said: recorded of every gated binary, merged, and shown of today's binaries alone."""

import json
import shutil
from pathlib import Path

import pytest
import sanitizers
from support import ROOT

from gemmrepro.errors import UserError
from gemmrepro.measure.recording import CLEAN, SANITIZERS, TOOLS, check_manifest, read_sanitizers
from gemmrepro.paper.inputs import load_sanitizers

H200 = ROOT / "reports/recorded/h200"
FAMILIES = sorted(path.parent.name for path in H200.glob("*/gates.json"))
WAITING = ("crt.", "sgemm.remainders", "memory.printed_", "memory.histogram_shared_few", "memory.histogram_merged_many")
WAITING += ("cute.article_unswizzled", "cute.dsl_nvidia_example", "fp8.scaled_bulk")
"""Beginnings of ids of kernels that are new or changed since the tools ran, of which pages say "not run"."""
RECORDED = {family: read_sanitizers(H200 / family / SANITIZERS) for family in FAMILIES}


def test_the_recorded_outcome_is_clean_but_for_one_known_warning() -> None:
    """Racecheck takes the making of an mbarrier by thread 0 for another thread's (tests/gpu/test_gpu_gate.py)."""
    found = {
        (kernel, toolkit, tool): said[-1]
        for kernels in RECORDED.values()
        for kernel, outcome in kernels.items()
        for toolkit, judged in outcome["toolkits"].items()
        for tool, said in judged["tools"].items()
        if said != CLEAN
    }
    known = {(f"ladder.{name}", "cuda13", "racecheck") for name in ("cut", "pinned", "tma")}
    assert set(found) == known
    assert all("(0 errors, " in said for said in found.values())


def test_every_tool_was_over_every_gated_binary_but_those_that_wait() -> None:
    lacking = set()
    for family in FAMILIES:
        for kernel, verdict in json.loads((H200 / family / "gates.json").read_text()).items():
            said = RECORDED[family].get(kernel, {"toolkits": {}})["toolkits"]
            assert all(set(judged["tools"]) == set(TOOLS) for judged in said.values()), kernel
            for toolkit, judged in verdict["toolkits"].items():
                if judged["status"] == "passed" and said.get(toolkit, {}).get("build_key") != judged["build_key"]:
                    lacking.add((kernel, toolkit))
    late = {kernel for kernel, _ in lacking}
    assert not [kernel for kernel in late if not kernel.startswith(WAITING)], "run tests/sanitizers.py, and file it"
    assert all(any(kernel.startswith(name) for kernel in late) for name in WAITING), "what was run waits no longer"


KERNEL, KEY = "pytorch.gelu", "0123456789abcdef"
JUDGED = {"build_key": KEY, "date": "2026-11-26", "shapes": ["1x2x3"], "tools": {"memcheck": "clean"}}


def entry(tool: str, key: str = KEY, date: str = "2026-11-26T10:00:00Z", **other: object) -> dict[str, object]:
    """One process's outcome, as `run` keeps it."""
    one = {"gpu": "NVIDIA H200", "date": date, "shapes": ["1x5001x1"], "outcome": "clean", "said": []}
    return {f"{KERNEL}:cuda13:{key}:{tool}": one | other}


def filed(folder: Path) -> dict[str, object]:
    check_manifest(folder / "pytorch")
    return read_sanitizers(folder / "pytorch" / SANITIZERS)[KERNEL]["toolkits"]["cuda13"]


def test_an_outcome_is_merged_into_what_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "h200"
    shutil.copytree(H200 / "pytorch", folder / "pytorch")
    before = read_sanitizers(folder / "pytorch" / SANITIZERS)
    sanitizers.record(entry("memcheck"), folder)
    assert filed(folder) == {
        "build_key": KEY,
        "date": "2026-11-26",
        "shapes": ["1x5001x1"],
        "tools": {"memcheck": "clean"},
    }
    sanitizers.record(entry("racecheck", outcome="found", said=["1 hazard"]), folder)
    assert filed(folder)["tools"] == {"memcheck": "clean", "racecheck": ["found", "1 hazard"]}
    sanitizers.record(entry("memcheck", key="f" * 16, date="2026-11-25T10:00:00Z"), folder)
    assert filed(folder)["build_key"] == KEY, "an older run of another binary replaces nothing"
    both = entry("memcheck", "a" * 16, "2026-11-26T12:00:00Z") | entry("memcheck", "b" * 16, "2026-11-26T11:00:00Z")
    sanitizers.record(both, folder)
    assert filed(folder)["build_key"] == "a" * 16, "the binary that was run last counts"
    after = read_sanitizers(folder / "pytorch" / SANITIZERS)
    others = {name for name in before if name != KERNEL}
    assert others and all(after[name] == before[name] for name in others)


def test_an_outcome_goes_to_its_own_gpus_recordings_and_has_their_form(tmp_path: Path) -> None:
    assert load_sanitizers(None, ["pytorch"]) == read_sanitizers(tmp_path / SANITIZERS) == {}
    (tmp_path / SANITIZERS).write_text(
        json.dumps({KERNEL: {"gpu": "G", "toolkits": {"cuda13": JUDGED | {"tools": {"lint": "clean"}}}}})
    )
    with pytest.raises(UserError, match="'lint' is not one of"):
        read_sanitizers(tmp_path / SANITIZERS)
    shutil.copytree(H200 / "pytorch", tmp_path / "h100/pytorch")
    with pytest.raises(UserError, match=r"of NVIDIA H200, and not of .*h100; name the recordings of that GPU"):
        sanitizers.record(entry("memcheck"), tmp_path / "h100")
    (tmp_path / "h200").mkdir()
    with pytest.raises(UserError, match="has no recording of pytorch; record the family there first"):
        sanitizers.record(entry("memcheck"), tmp_path / "h200")
