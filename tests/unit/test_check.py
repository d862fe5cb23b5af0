"""``python -m gemmrepro check``: every family passes, and each way to break the contract is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import ROOT

from gemmrepro import registry
from gemmrepro.check.stage import check_family
from gemmrepro.core import paths
from gemmrepro.figures import stage


@pytest.mark.parametrize("family", registry.family_names())
def test_every_family_passes(family: str) -> None:
    findings = check_family(family)
    assert not findings.problems
    assert findings.passed > 20 * len(registry.kernels(family))


def test_figures_of_the_registry_are_those_that_can_be_drawn() -> None:
    for name in registry.family_names():
        assert set(registry.family(name).figures) <= set(stage.painters(name)) & set(registry.FIGURES)


@dataclass(frozen=True)
class Fault:
    """One edit of a family's file that breaks the contract, and what `check` must say, where."""

    where: str
    says: str
    family: str = "ladder"
    file: str = "family.py"
    find: str = ""
    replace: str = ""

    def plant(self, kernels: Path) -> None:
        path = kernels / self.family / self.file
        if not self.find:
            path.write_text(self.replace)
            return
        text = path.read_text()
        assert self.find in text, f"{self.file} no longer has {self.find}"
        path.write_text(text.replace(self.find, self.replace, 1))


FAULTS = {
    "number of no row": Fault(
        "kernels/ladder/findings.md, line 1",
        "no row with kernel ladder.six",
        file="findings.md",
        replace="{ratio ladder.six 64}",
    ),
    "no such source": Fault("ladder.smem", "no source kernels/ladder/3_sme.cu", find="3_smem.cu", replace="3_sme.cu"),
    "entry not defined": Fault("ladder.smem", "defines no entry point", find='Code("smem"', replace='Code("shared"'),
    "entry without extern C": Fault(
        "ladder.smem", "defines no entry point", file="3_smem.cu", find='extern "C" ', replace=""
    ),
    "host code": Fault(
        "ladder.naive", "host code", file="1_naive.cu", find="\n#ifndef", replace="\nint main();\n#ifndef"
    ),
    "another constant": Fault(
        "ladder.blocktile_2d",
        "says bk = 16; in 5_blocktile_2d.cu it is 8",
        find='params={"bm": 128, "bn": 128, "bk": 8',
        replace='params={"bm": 128, "bn": 128, "bk": 16',
    ),
    "constant nowhere": Fault(
        "ladder.async_copy", "has no constant BM", file="7.1_async_copy.cu", find="BM = ", replace="ROWS = "
    ),
    "other launch bounds": Fault(
        "ladder.coalesced",
        "launched with \\[512\\]",
        find="launch=_tiles_by_rows(32, 32)",
        replace="launch=_tiles_by_rows(32, 16)",
    ),
    "too many threads": Fault(
        "ladder.coalesced", "2048 threads per block", find="_tiles_by_rows(32, 32)", replace="_tiles_by_rows(32, 64)"
    ),
    "output not covered": Fault(
        "ladder.smem",
        "tiles of 32 x 32",
        find='bk": 32, "tile": 32, "unroll": 32}),\n        launch=_tiles_by_rows(32, 32)',
        replace='bk": 32, "tile": 32, "unroll": 32}),\n        launch=_tiles_by_rows(64, 64)',
    ),
    "header not listed": Fault(
        "ladder.tma",
        "includes common/mbarrier.cuh, which Code.headers lacks",
        find='headers=("common/mbarrier.cuh", "common/tma.cuh")',
        replace='headers=("common/tma.cuh",)',
    ),
    "header not included": Fault(
        "ladder.tma",
        "does not include common/mma.cuh",
        find='headers=("common/mb',
        replace='headers=("common/mma.cuh", "common/mb',
    ),
    "opcode no expression": Fault(
        "ladder.vector_add", "no valid regular expression", find=r'r"FADD(\..*)?"', replace='r"FADD("'
    ),
    "opcode without a reason": Fault("ladder.vector_add", "without a reason", find='"the addition"', replace='""'),
    "opcode count impossible": Fault(
        "ladder.vector_add", "between 1 and 0 times", find='"the addition"', replace='"the addition", most=0'
    ),
    "nothing expected": Fault(
        "ladder.async_copy", "expects nothing", find="promises=Promises(expects=_RING)", replace="promises=Promises()"
    ),
    "unknown argument": Fault(
        "ladder.tma", "the argument x;", find='"alpha", "a", "map:b"', replace='"alpha", "x", "map:b"'
    ),
    "unknown swizzle": Fault("ladder.tma", "swizzle of b is 48", find="swizzle=0", replace="swizzle=48"),
    "box wider than its swizzle": Fault(
        "ladder.tma", "wider than its swizzle", find="swizzle=0", replace="swizzle=128"
    ),
    "own gate shape refused": Fault("ladder.cut", "refuses 2304x3072x401", find="3072, 416)", replace="3072, 401)"),
    "multiple of one": Fault(
        "ladder.blocktile_1d",
        "M must be a multiple of 1",
        find='{"m": 64, "n": 64, "k": 8}',
        replace='{"m": 1, "n": 64, "k": 8}',
    ),
    "unknown axis": Fault(
        "kernels/ladder/family.py",
        "ladder.blocktile_1d: Accepts names the axis x;",
        find='{"m": 64, "n"',
        replace='{"x": 64, "n"',
    ),
    "unknown counter": Fault("ladder.coalesced", "lts__t_byte,", find='"lts__t_bytes.sum"', replace='"lts__t_byte"'),
    "unknown baseline": Fault(
        "ladder.naive", "no baseline 'cublas.segmm'", find='Timing("cublas.sgemm")', replace='Timing("cublas.segmm")'
    ),
    "baseline forgotten": Fault(
        "kernels/ladder/family.py",
        "ladder.naive: it states no baseline",
        find='Timing("cublas.sgemm")',
        replace="Timing()",
    ),
    "unknown system": Fault("ladder.smem", "no system 'L3 sme'", find='"L3 smem"', replace='"L3 sme"'),
    "unknown article": Fault(
        "ladder.vector_add",
        "no article 'stairs'",
        find='story=Story(article="ladder"',
        replace='story=Story(article="stairs"',
    ),
    "gain over nothing": Fault(
        "ladder.cut",
        "'ladder.pined', which is no other",
        find="evidence=(_ISSUED, _TIME)",
        replace='gain_over="ladder.pined"',
    ),
    "no idea": Fault(
        "ladder.smem",
        "Story.idea is empty",
        find='idea="Tiles of A and B in shared memory: each global load serves 32 threads."',
        replace='idea=""',
    ),
    "a rung twice": Fault(
        "ladder.smem", "rung L2 is that of 2_coalesced.cu too", find='rung="L3"', replace='rung="L2"'
    ),
    "rungs out of order": Fault("ladder.blocktile_1d", "L4 follows L40", find='rung="L3"', replace='rung="L40"'),
    "an id twice": Fault(
        "ladder.coalesced", "2 records have this id", find='id="ladder.smem"', replace='id="ladder.coalesced"'
    ),
    "id of another family": Fault(
        "stairs.cut", "must begin with 'ladder.'", find='id="ladder.cut"', replace='id="stairs.cut"'
    ),
    "label twice": Fault(
        "ladder.smem", "its label, 'L2 coalesced', is that of", find='"L3 smem"', replace='"L2 coalesced"'
    ),
    "label too long": Fault(
        "ladder.a_kernel_with_a_name_that_no_figure_has_room_for",
        "longer than 40 characters",
        find='id="ladder.spread"',
        replace='id="ladder.a_kernel_with_a_name_that_no_figure_has_room_for"',
    ),
    "unknown figure": Fault("kernels/ladder/family.py", "names pie", find='figures=("ratio"', replace='figures=("pie"'),
    "family of another name": Fault(
        "kernels/ladder/family.py", "FAMILY.name is 'stairs'", find='name="ladder"', replace='name="stairs"'
    ),
    "private module imported": Fault(
        "kernels/ladder/family.py, line",
        "imports gemmrepro.build.stage, which is no part",
        find="from gemmrepro.operations import Shape",
        replace="from gemmrepro.build.stage import main\nfrom gemmrepro.operations import Shape",
    ),
    "syntax error": Fault(
        "kernels/ladder/family.py", "fails with SyntaxError", find="FAMILY = ", replace="FAMILY == = "
    ),
    "source of no record": Fault(
        "kernels/ladder/9_new.cu", "no record and no experiment", file="9_new.cu", replace="// new\n"
    ),
    "claim on an unknown kernel": Fault(
        "articles", "ladder.smeme", file="../articles/ladder/claims.yaml", find="ladder.smem", replace="ladder.smeme"
    ),
    "claim of an unknown metric": Fault(
        "articles", "metric", file="../articles/ladder/claims.yaml", find="metric: ", replace="metric: un"
    ),
    "tile function without a constant": Fault(
        "cutile.matmul_fp16", "takes the constants", "cutile", "1_matmul.py", "GROUP: Constant)", "ROWS: Constant)"
    ),
    "tile function of another name": Fault(
        "cutile.matmul_fp16",
        "defines no kernel matmul; it has matrix",
        "cutile",
        "1_matmul.py",
        "def matmul(",
        "def matrix(",
    ),
    "DSL constant": Fault(
        "cute.dsl_three_stages", "says stages = 3", "cute", "dsl_three_stages.py", "STAGES = 3", "STAGES = 4"
    ),
    "experiment on an unknown kernel": Fault(
        "kernels/ada/experiments.py, accumulation",
        "ada.accumulate_insid, which no family",
        "ada",
        "experiments.py",
        '"ada.accumulate_inside"',
        '"ada.accumulate_insid"',
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_named(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the family and of what all families share; loading the others would only take time."""
    for name in {fault.family, "common", "ceilings"}:
        shutil.copytree(paths.KERNELS_DIR / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copy(paths.KERNELS_DIR / "chips.yaml", tmp_path)
    shutil.copytree(paths.ARTICLES_DIR, tmp_path / "articles")
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    monkeypatch.setattr(paths, "ARTICLES_DIR", tmp_path / "articles")
    fault.plant(tmp_path)
    problems = check_family(fault.family).problems
    assert any(problem.where.startswith(fault.where) and re.search(fault.says, problem.what) for problem in problems), (
        f"nothing says so among: {'; '.join(map(str, problems))}"
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gemmrepro", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT / "workflow")})


def test_the_command_prints_a_line_for_each_family() -> None:
    done = run("check", "pytorch", "ceilings")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"pytorch: \d+ kernels, \d+ claims, \d+ checks passed", first)
    assert re.fullmatch(r"ceilings: \d+ kernels, 0 claims, \d+ checks passed", second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("check", "stairs"), "no kernel family 'stairs'"), (("chek",), "no command 'chek'; known are check")],
)
def test_what_there_is_not_is_named(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
