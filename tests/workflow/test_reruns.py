"""What an edit reruns. Every output is faked and touched, one file is edited, and Snakemake says what it would do.

No container and no GPU is needed, and nothing runs: the plan is Snakemake's own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import copy_sources, snakemake

from gemmrepro import experiments, registry
from gemmrepro.core import names
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.host.sources import LOCK
from gemmrepro.measure.regimes import places
from gemmrepro.registry import Kernel

RECORDED = ("--config", "measure=recorded")
LIBRARY = "workflow/gemmrepro"
OTHER_GPU = "h100-80gb-hbm3"
FOLDERS = {f"reports/{name}" for name in names.REPORT_FOLDERS}
FOLDERS |= {f"results/gpus/{OTHER_GPU}/{name}" for name in ("measure", "regimes", "experiments", "gates")}

EVERY = registry.kernels()
FAMILIES = registry.family_names()
TAKEN = {family for family in FAMILIES if places.takes(RECORDINGS / "h200", family)}
"""The families whose kernels were also measured sustained and in bursts; one job reads all of them."""
ALL_FIGURES = {f"figures_{family}": 1 for family in FAMILIES if experiments.figure_names(family)}
REPORT = {"report": 1}
ELSEWHERE = {f"verdicts_on_{OTHER_GPU.replace('-', '_')}": 1} | REPORT
VERDICTS = {"verdicts": 1, "figures_paper": 1} | ELSEWHERE


def builds(kernels: list[Kernel]) -> dict[str, int]:
    """The jobs that build some kernels: one per family and toolkit. Those in the cache are not compiled again."""
    return {f"build_{kernel.family}_{toolkit}": 1 for kernel in kernels for toolkit in kernel.platform.toolkits}


def gates(kernels: list[Kernel]) -> dict[str, int]:
    """The gates, of all families by one job, if those of any kernels changed; and what reads gates."""
    return ({"gate_recorded": 1} if kernels else {}) | VERDICTS


def rows(*families: str) -> dict[str, int]:
    """The rows of some families, and what reads rows. The ceilings stand in every figure of a roofline."""
    drawn = ALL_FIGURES if "ceilings" in families else {f"figures_{family}": 1 for family in families}
    taken = {"recorded_regimes": 1} if TAKEN & {*families} else {}
    return {"measure": len(families)} | taken | {name: 1 for name in drawn if name in ALL_FIGURES} | VERDICTS


def here(jobs: dict[str, int]) -> dict[str, int]:
    """Those of `jobs` that read the recordings of the report's own GPU."""
    return {name: count for name, count in jobs.items() if not name.startswith("verdicts_on_")}


def in_turn(jobs: dict[str, int]) -> dict[str, int]:
    """`here`, without what reads takes of the regimes alone."""
    return {name: count for name, count in here(jobs).items() if name != "recorded_regimes"}


def with_op(*operations: str) -> list[Kernel]:
    return [kernel for kernel in EVERY if kernel.compute.op in operations]


def compiled_by(*compilers: str) -> list[Kernel]:
    return [kernel for kernel in EVERY if kernel.code.compiler in compilers]


def from_source(family: str, source: str) -> list[Kernel]:
    return [kernel for kernel in registry.kernels(family) if kernel.source == source]


def from_header(header: str) -> list[Kernel]:
    return [kernel for kernel in EVERY if header in kernel.code.headers]


def chain(kernels: list[Kernel]) -> dict[str, int]:
    """All that follows from a kernel's source."""
    families = {kernel.family for kernel in kernels}
    together = [kernel for kernel in EVERY if kernel.family in families]
    return builds(kernels) | gates(kernels) | experiments_with(together) | rows(*families)


def experiments_with(kernels: list[Kernel]) -> dict[str, int]:
    """The experiments that run some kernels, and the figures of their families."""
    ids = {kernel.id for kernel in kernels}
    running = {family for family in FAMILIES for each in experiments.declared(family) if ids & set(each.kernels)}
    return {f"{job}_{family}": 1 for family in running for job in ("experiments", "figures")}


@dataclass(frozen=True)
class Edit:
    """In `file`, the first `old` becomes `new`; Snakemake must plan `jobs` by rule, and nothing else."""

    name: str
    file: str
    old: str
    new: str
    jobs: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def made_in(self, folder: Path) -> Iterator[None]:
        """The edit, undone afterwards: content and times."""
        path = folder / self.file
        before, times = path.read_text(), path.stat()
        assert self.old in before, f"{self.file} holds no {self.old!r}"
        path.write_text(before.replace(self.old, self.new, 1))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CRT, LADDER = list(registry.kernels("crt")), "kernels/ladder"
OF_EVERY_FAMILY = rows(*FAMILIES)

EDITS = [
    # Words of the library rerun nothing.
    Edit("a comment in the registry", f"{LIBRARY}/registry/records.py", "@dataclass", "# A comment.\n@dataclass"),
    Edit("a comment in the cuBLAS binding", f"{LIBRARY}/gpu/cublas.py", "\nclass ", "\n# A comment.\nclass "),
    Edit("a docstring", f"{LIBRARY}/core/files.py", '"""Write `value`', '"""Writes `value`'),
    Edit("an error's words", f"{LIBRARY}/build/toolkit.py", "there is no toolkit", "no toolkit is called"),
    Edit("a constant that nothing reads", f"{LIBRARY}/core/text.py", "\ndef ", "\nUNUSED = 1\n\n\ndef "),
    Edit("the builder of images", f"{LIBRARY}/host/images.py", "\ndef main", "\nUNUSED = 1\n\n\ndef main"),
    Edit("a family's notes", f"{LADDER}/NOTES.md", "\n", "\n\n"),
    Edit("the README", "README.md", "\n", "\n\n"),
    # Bounds and tolerances of gates.
    Edit("the margin of scheme II", "kernels/crt/family.py", "MARGIN = ", "MARGIN = 1e9 * ", gates(CRT)),
    Edit(
        "the bound of GEMM",
        f"{LIBRARY}/gates/bounds.py",
        "LAMBDA = ",
        "LAMBDA = 1e9 * ",
        gates(with_op("gemm")),
    ),
    Edit(
        "the bound of scheme II, in the ozaki package",
        f"{LIBRARY}/ozaki/scheme2.py",
        "4.0 * math.sqrt",
        "4e9 * math.sqrt",
        gates([kernel for kernel in CRT if kernel.id != "crt.accurate"]),
    ),
    Edit(
        "a helper three imports away from a bound",
        f"{LIBRARY}/ozaki/residues.py",
        "- 1) // 2",
        "- 1) // 4",
        gates([*CRT, *registry.kernels("sgemm")]),  # FP32 from remainders has a bound of the same kind
    ),
    Edit(
        "a tolerance of the ceilings",
        f"{LIBRARY}/gates/ceilings.py",
        "WGMMA_TOLERANCE = ",
        "WGMMA_TOLERANCE = 1e9 * ",
        gates(with_op("ceiling_flops")),
    ),
    Edit(
        "the bound of GELU",
        f"{LIBRARY}/gates/pointwise.py",
        "GAMMA = ",
        "GAMMA = 1e9 * ",
        gates(with_op("gelu", "gemm_epilogue")),
    ),
    Edit(
        "the lengths that vectors are judged at",
        f"{LIBRARY}/gates/vectors.py",
        "LENGTHS = (",
        "LENGTHS = (7, ",
        gates(with_op("vector_copy", "reduce", "histogram")),
    ),
    # Records: what is run, judged, drawn and told.
    Edit(
        "a launch",
        f"{LADDER}/family.py",
        "grid=(tiles + rest * (pieces - 1), 1, 1)",
        "grid=(1, 1, 1)",
        {"gate_recorded": 1} | rows("ladder"),
    ),
    Edit("a rung's label", f"{LADDER}/family.py", 'rung="L7.1"', 'rung="L7.1b"', rows("ladder")),
    Edit("a rung's idea", f"{LADDER}/family.py", 'idea="', 'idea="x', REPORT),
    Edit("a rung's evidence", f"{LADDER}/family.py", "evidence=(", 'evidence=("dram__bytes.sum", ', REPORT),
    Edit("a family's summary", f"{LADDER}/family.py", "summary=", 'summary="x" + ', REPORT),
    # Sources and compilers.
    Edit("a source", f"{LADDER}/1_naive.cu", "\n", "\n// An edit.\n", chain(from_source("ladder", "1_naive.cu"))),
    Edit(
        "a shared header",
        "kernels/common/wgmma_int8.cuh",
        "\n",
        "\n// An edit.\n",
        chain(from_header("common/wgmma_int8.cuh")),
    ),
    Edit(
        "the options of one compiler",
        f"{LIBRARY}/build/cute_dsl_trace.py",
        "--opt-level 3",
        "--opt-level 2",
        # Two jobs compile CuTe's kernels with CUDA 13, the second of them those in Python.
        {job.replace("_cute_cuda13", "_cute_cuda13_2"): count for job, count in chain(compiled_by("cute_dsl")).items()},
    ),
    Edit("the order of the winners' file", f"{LADDER}/tuned/h200.json", "{", "{ "),
    # Recordings and their form.
    Edit(
        "a recorded verdict",
        "reports/recorded/h200/ladder/gates.json",
        "\n",
        "\n\n",
        in_turn(gates(list(registry.kernels("ladder"))) | rows("ladder")),
    ),
    Edit("a recorded sanitizer", "reports/recorded/h200/ladder/sanitizers.json", "\n", "\n\n", in_turn(rows("ladder"))),
    Edit("recorded rows", "reports/recorded/h200/ladder/summary.csv", "\n", "\n\n", in_turn(rows("ladder"))),
    Edit("another GPU's recorded rows", f"reports/recorded/{OTHER_GPU}/ladder/summary.csv", "\n", "\n\n", ELSEWHERE),
    Edit(
        "a recorded take",
        "reports/recorded/h200/hopper/regimes/1/summary.csv",
        "\n",
        "\n\n",
        here({"recorded_regimes": 1} | VERDICTS),
    ),
    Edit("a column's least value", f"{LIBRARY}/measure/columns.py", "least=1)", "least=2)", OF_EVERY_FAMILY),
    Edit("the schema of a run", "workflow/schemas/run.schema.yaml", "\n", "\n# An edit.\n", OF_EVERY_FAMILY),
    # Claims, figures and the paper.
    Edit("a claim's tolerance", f"{LADDER}/claims.yaml", "tolerance: ", "tolerance: 9", VERDICTS),
    Edit("a claim's register", f"{LADDER}/claims.yaml", "    where: ", "    register: project\n    where: ", VERDICTS),
    Edit(
        "a table of an article",
        "kernels/ozaki/tables.py",
        "1024, 2048",
        "2048",
        {"figures_ozaki": 1, "figures_paper": 1} | REPORT,
    ),
    Edit("a rate of a chip", "kernels/chips.yaml", "38.7", "38.8", OF_EVERY_FAMILY),
    Edit("the schema of chips", "workflow/schemas/chips.schema.yaml", "\n", "\n# An edit.\n", OF_EVERY_FAMILY),
    Edit("the schema of claims", "workflow/schemas/claims.schema.yaml", "\n", "\n# An edit.\n", VERDICTS),
    Edit("a published figure", "kernels/published.csv", "0", "1", ALL_FIGURES | VERDICTS),
    # Figures take their ratios from the metrics, which judge by these rules.
    Edit("a rule of judgement", f"{LIBRARY}/judge/rules.py", '"reproduced"', '"confirmed"', ALL_FIGURES | VERDICTS),
    Edit(
        "a figure's module",
        f"{LIBRARY}/figures/ladder.py",
        "SIZES = ",
        "SIZES = 1 and ",
        ALL_FIGURES | {"figures_paper": 1} | REPORT,
    ),
    Edit("the template", "reports/template/index.html.j2", "\n", "\n\n", REPORT),
    Edit("findings", f"{LADDER}/findings.md", "\n", "\n\n", REPORT),
    Edit("a comment in the declaration of experiments", "kernels/ada/experiments.py", "\n", "\n# A comment.\n"),
    Edit("the seeds of gates", "config/config.yaml", "seeds: 2", "seeds: 3", {"settings": 1} | REPORT),
]


@pytest.fixture(scope="module")
def touched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with every output of the default target faked and up to date."""
    folder = tmp_path_factory.mktemp("touched") / "gemmrepro"
    copy_sources(folder)
    summary = snakemake("--summary", *RECORDED, folder=folder)
    assert summary.returncode == 0, summary.stdout
    outputs = [line.split("\t")[0] for line in summary.stdout.splitlines() if "\t" in line]
    for name in outputs[1:]:
        if name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    touch = snakemake("--touch", "--forceall", *RECORDED, folder=folder)
    assert touch.returncode == 0, touch.stdout
    assert planned(folder) == {}
    return folder


def planned(folder: Path, *more: str) -> dict[str, int]:
    """Jobs that a dry run would do, by rule; `more` follows `--config`."""
    plan = snakemake("--dry-run", *RECORDED, *more, folder=folder)
    assert plan.returncode == 0, plan.stdout
    if "Nothing to be done" in plan.stdout:
        return {}
    table = plan.stdout.split("Job stats:")[1].split("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.M) if name != "all"}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_reruns_what_reads_it_and_nothing_else(edit: Edit, touched: Path) -> None:
    with edit.made_in(touched):
        assert planned(touched) == edit.jobs


def test_a_version_in_the_lock_builds_the_images_that_hold_it_again_and_no_other(touched: Path) -> None:
    """Of Debian's packages; the lock is one file for all images."""
    (touched / "resources/images").mkdir(parents=True, exist_ok=True)
    for env in ("cuda12", "cuda13", "report"):
        for suffix in ("sif", "lock.json"):
            (touched / f"resources/images/{env}.{suffix}").write_text("{}")
    touch = snakemake("--touch", "--forceall", *RECORDED, "--", "images", folder=touched)
    assert touch.returncode == 0, touch.stdout
    assert planned(touched, "--", "images") == {}
    lock = json.loads((touched / LOCK).read_text())
    report = lock["environments"]["report"]["debs"]
    report[0] = report[0].replace("_", "_1", 1)
    lock["sha256"] |= {report[0]: "0" * 64}
    (touched / LOCK).write_text(json.dumps(lock))
    assert planned(touched, "--", "images") == {"image_report": 1, "images": 1}


def test_what_was_compiled_once_is_compiled_whole_when_asked(touched: Path) -> None:
    """Of those kernels there is a record with the build key, and no binary."""
    assert planned(touched, "--", "build") in ({}, {"build": 1})
    jobs = set(planned(touched, "compiled_once=[]", "--", "build"))
    assert {"build_crt_cuda12"} <= jobs and [name for name in jobs if name.startswith("build_cute_cuda12")] != []
