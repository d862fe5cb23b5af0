"""What compute-sanitizer said: recorded of every gated binary, merged, and refused where it is of another GPU."""

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
WAITING = ("crt.library", "hopper.any_shape")
"""Beginnings of ids of kernels that are new or changed since the tools ran, of which pages say "not run"."""
RECORDED = {family: read_sanitizers(H200 / family / SANITIZERS) for family in FAMILIES}


def test_every_tool_was_over_every_gated_binary_and_found_nothing_but_one_known_warning() -> None:
    """Racecheck takes the making of an mbarrier by thread 0 for another thread's (tests/gpu/test_gpu_gate.py)."""
    late, warned = set(), set()
    for family in FAMILIES:
        for kernel, verdict in json.loads((H200 / family / "gates.json").read_text()).items():
            said = RECORDED[family].get(kernel, {"toolkits": {}})["toolkits"]
            for toolkit, judged in said.items():
                assert set(judged["tools"]) == set(TOOLS), kernel
                unclean = {tool: lines for tool, lines in judged["tools"].items() if lines != CLEAN}
                assert all("(0 errors, " in lines[-1] for lines in unclean.values())
                warned |= {(kernel, toolkit, tool) for tool in unclean}
            for toolkit, judged in verdict["toolkits"].items():
                if judged["status"] == "passed" and said.get(toolkit, {}).get("build_key") != judged["build_key"]:
                    late.add(kernel)
    assert warned == {(f"ladder.{name}", "cuda13", "racecheck") for name in ("cut", "pinned", "tma")}
    assert not [kernel for kernel in late if not kernel.startswith(WAITING)], "run tests/sanitizers.py, and file it"
    assert all(any(kernel.startswith(name) for kernel in late) for name in WAITING), "what was run waits no longer"


KERNEL, KEY = "pytorch.gelu", "0123456789abcdef"


def entry(tool: str, key: str = KEY, date: str = "2026-11-26T10:00:00Z", **other: object) -> dict[str, object]:
    """One process's outcome, as `run` keeps it."""
    one = {"gpu": "NVIDIA H200", "date": date, "shapes": ["1x5001x1"], "outcome": "clean", "said": []}
    return {f"{KERNEL}:cuda13:{key}:{tool}": one | other}


def test_an_outcome_is_merged_into_its_own_gpus_recordings(tmp_path: Path) -> None:
    folder = tmp_path / "h200"
    with pytest.raises(UserError, match="has no recording of pytorch; record the family there first"):
        sanitizers.record(entry("memcheck"), folder)
    shutil.copytree(H200 / "pytorch", folder / "pytorch")
    with pytest.raises(UserError, match=r"of NVIDIA V100, and not of .*h200; name the recordings of that GPU"):
        sanitizers.record(entry("memcheck", gpu="NVIDIA V100"), folder)
    sanitizers.record(entry("memcheck"), folder)
    sanitizers.record(entry("racecheck", outcome="found", said=["1 hazard"]), folder)
    sanitizers.record(entry("memcheck", key="f" * 16, date="2026-11-25T10:00:00Z"), folder)  # of an older binary
    check_manifest(folder / "pytorch")
    path = folder / "pytorch" / SANITIZERS
    merged = read_sanitizers(path)
    assert merged.pop(KERNEL)["toolkits"]["cuda13"] == {
        **{"build_key": KEY, "date": "2026-11-26", "shapes": ["1x5001x1"]},
        "tools": {"memcheck": "clean", "racecheck": ["found", "1 hazard"]},
    }
    assert merged == {name: said for name, said in RECORDED["pytorch"].items() if name != KERNEL}
    assert load_sanitizers(None, ["pytorch"]) == read_sanitizers(tmp_path / SANITIZERS) == {}
    path.write_text(path.read_text().replace('"memcheck"', '"lint"', 1))
    with pytest.raises(UserError, match="'lint' is not one of"):
        read_sanitizers(path)
