"""``python -m gemmrepro check``: every family passes, and each way to break the contract is named."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.check.family import check_family
from gemmrepro.core import paths


@pytest.mark.parametrize("family", registry.family_names())
def test_every_family_passes(family: str) -> None:
    findings = check_family(family)
    assert not findings.problems
    assert findings.passed > 20 * len(registry.kernels(family))


@dataclass(frozen=True)
class Fault:
    """One edit of a family's file that breaks the contract, and what `check` must say, where."""

    where: str
    says: str
    find: str
    replace: str
    file: str = "family.py"
    family: str = "ladder"

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
        "",
        "{ratio ladder.six 64}",
        "findings.md",
    ),
    "no such source": Fault("ladder.smem", "no source kernels/ladder/3_sme.cu", "3_smem.cu", "3_sme.cu"),
    "entry not defined": Fault("ladder.smem", "defines no entry point", 'Code("smem"', 'Code("shared"'),
    "entry without extern C": Fault("ladder.smem", "defines no entry point", 'extern "C" ', "", "3_smem.cu"),
    "host code": Fault("ladder.naive", "host code", "\n#ifndef", "\nint main();\n#ifndef", "1_naive.cu"),
    "another constant": Fault(
        "ladder.blocktile_2d",
        "says bk = 16; in 5_blocktile_2d.cu it is 8",
        'params={"bm": 128, "bn": 128, "bk": 8',
        'params={"bm": 128, "bn": 128, "bk": 16',
    ),
    "constant nowhere": Fault("ladder.async_copy", "has no constant BM", "BM = ", "ROWS = ", "7.1_async_copy.cu"),
    "other launch bounds": Fault(
        "ladder.coalesced", "launched with \\[512\\]", "launch=_tiles_by_rows(32, 32)", "launch=_tiles_by_rows(32, 16)"
    ),
    "too many threads": Fault(
        "ladder.coalesced", "2048 threads per block", "_tiles_by_rows(32, 32)", "_tiles_by_rows(32, 64)"
    ),
    "output not covered": Fault(
        "ladder.smem",
        "tiles of 32 x 32",
        'bk": 32, "tile": 32, "unroll": 32}),\n        launch=_tiles_by_rows(32, 32)',
        'bk": 32, "tile": 32, "unroll": 32}),\n        launch=_tiles_by_rows(64, 64)',
    ),
    "header not listed": Fault(
        "ladder.tma",
        "includes common/mbarrier.cuh, which Code.headers lacks",
        'headers=("common/mbarrier.cuh", "common/tma.cuh")',
        'headers=("common/tma.cuh",)',
    ),
    "header not included": Fault(
        "ladder.tma", "does not include common/mma.cuh", 'headers=("common/mb', 'headers=("common/mma.cuh", "common/mb'
    ),
    "opcode no expression": Fault("ladder.vector_add", "no valid regular expression", 'r"FADD(\\..*)?"', 'r"FADD("'),
    "opcode without a reason": Fault("ladder.vector_add", "without a reason", '"the addition"', '""'),
    "opcode count impossible": Fault(
        "ladder.vector_add", "between 1 and 0 times", '"the addition"', '"the addition", most=0'
    ),
    "nothing expected": Fault(
        "ladder.async_copy", "expects nothing", "promises=Promises(expects=_RING)", "promises=Promises()"
    ),
    "unknown argument": Fault("ladder.tma", "the argument x;", '"alpha", "a", "map:b"', '"alpha", "x", "map:b"'),
    "unknown swizzle": Fault("ladder.tma", "swizzle of b is 48", "swizzle=0", "swizzle=48"),
    "box wider than its swizzle": Fault("ladder.tma", "wider than its swizzle", "swizzle=0", "swizzle=128"),
    "own gate shape refused": Fault("ladder.cut", "refuses 2304x3072x401", "3072, 416)", "3072, 401)"),
    "multiple of one": Fault(
        "ladder.blocktile_1d", "M must be a multiple of 1", '{"m": 64, "n": 64, "k": 8}', '{"m": 1, "n": 64, "k": 8}'
    ),
    "unknown axis": Fault(
        "kernels/ladder/family.py", "ladder.blocktile_1d: Accepts names the axis x;", '{"m": 64, "n"', '{"x": 64, "n"'
    ),
    "unknown counter": Fault("ladder.coalesced", "lts__t_byte,", '"lts__t_bytes.sum"', '"lts__t_byte"'),
    "unknown baseline": Fault(
        "ladder.naive", "no baseline 'cublas.segmm'", 'Timing("cublas.sgemm")', 'Timing("cublas.segmm")'
    ),
    "baseline forgotten": Fault(
        "kernels/ladder/family.py", "ladder.naive: it states no baseline", 'Timing("cublas.sgemm")', "Timing()"
    ),
    "unknown system": Fault("ladder.smem", "no system 'L3 sme'", '"L3 smem"', '"L3 sme"'),
    "unknown article": Fault(
        "ladder.vector_add", "no article 'stairs'", 'story=Story(article="ladder"', 'story=Story(article="stairs"'
    ),
    "gain over nothing": Fault(
        "ladder.cut", "'ladder.pined', which is no other", "evidence=(_ISSUED, _TIME)", 'gain_over="ladder.pined"'
    ),
    "no idea": Fault(
        "ladder.smem",
        "Story.idea is empty",
        'idea="Tiles of A and B in shared memory: each global load serves 32 threads."',
        'idea=""',
    ),
    "a rung twice": Fault("ladder.smem", "rung L2 is that of 2_coalesced.cu too", 'rung="L3"', 'rung="L2"'),
    "rungs out of order": Fault("ladder.blocktile_1d", "L4 follows L40", 'rung="L3"', 'rung="L40"'),
    "an id twice": Fault("ladder.coalesced", "2 records have this id", 'id="ladder.smem"', 'id="ladder.coalesced"'),
    "id of another family": Fault("stairs.cut", "must begin with 'ladder.'", 'id="ladder.cut"', 'id="stairs.cut"'),
    "label twice": Fault("ladder.smem", "its label, 'L2 coalesced', is that of", '"L3 smem"', '"L2 coalesced"'),
    "label too long": Fault(
        "ladder.a_kernel_with_a_name_that_no_figure_has_room_for",
        "longer than 40 characters",
        'id="ladder.spread"',
        'id="ladder.a_kernel_with_a_name_that_no_figure_has_room_for"',
    ),
    "unknown figure": Fault("kernels/ladder/family.py", "names pie", 'figures=("ratio"', 'figures=("pie"'),
    "family of another name": Fault(
        "kernels/ladder/family.py", "FAMILY.name is 'stairs'", 'name="ladder"', 'name="stairs"'
    ),
    "private module imported": Fault(
        "kernels/ladder/family.py, line",
        "imports gemmrepro.build.stage, which is no part",
        "from gemmrepro.operations import Shape",
        "from gemmrepro.build.stage import main\nfrom gemmrepro.operations import Shape",
    ),
    "syntax error": Fault("kernels/ladder/family.py", "fails with SyntaxError", "FAMILY = ", "FAMILY == = "),
    "source of no record": Fault("kernels/ladder/9_new.cu", "no record and no experiment", "", "// new\n", "9_new.cu"),
    "claim on an unknown kernel": Fault(
        "articles", "ladder.smeme", "ladder.smem", "ladder.smeme", "../articles/ladder/claims.yaml"
    ),
    "claim of an unknown metric": Fault(
        "articles", "metric", "metric: ", "metric: un", "../articles/ladder/claims.yaml"
    ),
    "tile function without a constant": Fault(
        "cutile.matmul_fp16", "takes the constants", "GROUP: Constant)", "ROWS: Constant)", "1_matmul.py", "cutile"
    ),
    "tile function of another name": Fault(
        "cutile.matmul_fp16",
        "defines no kernel matmul; it has matrix",
        "def matmul(",
        "def matrix(",
        "1_matmul.py",
        "cutile",
    ),
    "DSL constant": Fault(
        "cute.dsl_three_stages", "says stages = 3", "STAGES = 3", "STAGES = 4", "dsl_three_stages.py", "cute"
    ),
    "experiment on an unknown kernel": Fault(
        "kernels/ada/experiments.py, accumulation",
        "ada.accumulate_insid, which no family",
        '"ada.accumulate_inside"',
        '"ada.accumulate_insid"',
        "experiments.py",
        "ada",
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


def test_the_command_prints_a_line_for_each_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["check", "pytorch", "ceilings"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"pytorch: \d+ kernels, \d+ claims, \d+ checks passed", first)
    assert re.fullmatch(r"ceilings: \d+ kernels, 0 claims, \d+ checks passed", second)
