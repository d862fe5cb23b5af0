"""What was asked of the project at its beginning, held to."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from support import ROOT, snakemake

from gemmrepro import experiments, registry
from gemmrepro.__main__ import STAGES
from gemmrepro.core import dependencies
from gemmrepro.host.plan import Plan

TOP = ("Snakefile", "workflow", "envs", "kernels", "articles", "docker", "reports", "tests", "README.md", "flake.nix")
ROWS = re.findall(r"^\| ((?:`\w+`(?:; )?)+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
TARGETS = [target for row in ROWS for target in re.findall(r"\w+", row)]


def test_the_folders_and_files_that_were_asked_for_stand_at_the_top() -> None:
    assert [name for name in TOP if not (ROOT / name).exists()] == []


@cache
def stages() -> frozenset[Path]:
    """The files of the library that some rule runs, and of kernels and experiments in Python."""
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    started = {STAGES[stage][0].partition(":")[0] for stage in re.findall(r"-m gemmrepro ([\w-]+)", rules)}
    named = [*re.findall(r"\bgemmrepro(?:\.\w+)+", rules), *(f"gemmrepro.{module}" for module in started)]
    waiting = [name for name in named if dependencies.file_of(name)]
    modules: set[str] = set()
    while waiting:
        if (module := waiting.pop()) not in modules:
            modules.add(module)
            waiting += (imported for imported, _ in dependencies.contents(module).imports.values())
    library = {path for module in modules if (path := dependencies.file_of(module))}
    kernels = {kernel.source_path for kernel in registry.kernels() if kernel.source_path.suffix == ".py"}
    declared = [(family, each) for family in registry.family_names() for each in experiments.declared(family)]
    sources = {path for _, each in declared for path in experiments.source_paths(each) if path.suffix == ".py"}
    return frozenset(library | kernels | sources | {experiments.path_of(family) for family, _ in declared})


def imported(path: Path) -> set[str]:
    """What a Python file imports, also in functions: packages, and names of packages in them."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("tool", ["snakemake", "cupy", "torch", "cuda.tile", "pandas", "seaborn"])
def test_each_tool_that_was_asked_for_is_used_by_a_stage_or_a_kernel(tool: str) -> None:
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    names = set(re.findall(r"^from (\S+) import", rules, re.MULTILINE)).union(*map(imported, stages()))
    assert [name for name in names if f"{name}.".startswith(f"{tool}.")]


def planned(folder: Path, target: str) -> str:
    asked = ("--dry-run", "--printshellcmds", "--config", "measure=recorded", "--", target)
    plan = snakemake(*asked, folder=folder, GEMMREPRO_TUNED="none")  # as a run inherits it from one that tunes
    assert plan.returncode == 0, plan.stdout
    return plan.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_of_the_readme_plans(target: str, tree: Path) -> None:
    plan = planned(tree, target)
    assert "This was a dry-run" in plan
    assert "reason: " not in plan, "it would list each input"


@pytest.mark.parametrize(
    ("target", "families"),
    [
        ("results/gates/ladder.smem.json", {"ladder"}),
        ("results/build/cuda12/ladder.smem.json", {"ladder"}),
        ("results/measure/ladder/summary.csv", {"ladder"}),
        ("results/regimes/hopper/summary.csv", {"hopper"}),
        ("results/experiments/fp8/sums.csv", {"fp8", "hopper", "crt", "sgemm", "ladder"}),  # `releases` times the best
        ("results/figures/memory/histogram.svg", {"memory", "ceilings"}),  # a roofline's ceilings
    ],
)
def test_a_part_is_planned_alone(target: str, families: set[str], tree: Path) -> None:
    commands = "".join(re.findall(r"python3 -m .*", planned(tree, target)))
    assert {name for name in registry.family_names() if re.search(rf"\b{name}\b", commands)} == families
    if "ladder.smem" in target:
        assert {*re.findall(r"\b(ladder\.\w+)=", commands)} == {"ladder.smem"}


def test_the_default_run_has_ozakis_emulation_with_five_to_nine_slices() -> None:
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    plan = Plan(config, "recorded", None)
    assert {f"ozaki.fused_bf16_d{slices}" for slices in range(5, 10)} <= plan.kernels.keys()
    rows = (Path(plan.recordings) / "ozaki/summary.csv").read_text()
    assert all(f"ozaki.fused_bf16_d{slices}," in rows for slices in range(5, 10))
