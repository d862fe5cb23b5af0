"""What an edit reruns. Every output is faked and touched, one file is edited, and Snakemake says what it would do.

No container and no GPU is needed, and nothing runs: the plan is Snakemake's own.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import copy_sources, planned, snakemake

from gemmrepro import experiments, registry
from gemmrepro.core import names
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.host.recipes import LOCK
from gemmrepro.host.runs import HEADER
from gemmrepro.measure import regimes as regime_files
from gemmrepro.registry import Kernel

RECORDED = ("--config", "measure=recorded")
LIBRARY = "workflow/gemmrepro"
OTHER_GPU = "h100-80gb-hbm3"
FOLDERS = {f"reports/{name}" for name in names.REPORT_FOLDERS}
FOLDERS |= {f"results/gpus/{OTHER_GPU}/{name}" for name in ("measure", "regimes", "experiments", "gates")}

FAMILIES = registry.family_names()
TAKEN = {family for family in FAMILIES if regime_files.takes(RECORDINGS / "h200", family)}
"""The families whose kernels were also measured sustained and in bursts."""

REPORT = {"report": 1}
ELSEWHERE = {"verdicts_on": 1} | REPORT
VERDICTS = {"verdicts": 1, "figures_paper": 1} | ELSEWHERE
GATES = {"gate_recorded": 1} | VERDICTS
"""Of all families by one job, and what reads gates."""


def figures(*families: str) -> dict[str, int]:
    return {f"figures_{family}": 1 for family in families if experiments.figure_names(family)}


def rows(*families: str) -> dict[str, int]:
    """The rows of some families, and what reads rows. The ceilings stand in every figure of a roofline."""
    taken = {"recorded_regimes": len(TAKEN & {*families})} if TAKEN & {*families} else {}
    return {"measure": len(families)} | taken | figures(*(FAMILIES if "ceilings" in families else families)) | VERDICTS


def here(jobs: dict[str, int], *left_out: str) -> dict[str, int]:
    """Those of `jobs` that read the recordings of the report's own GPU."""
    return {name: count for name, count in jobs.items() if name not in ("verdicts_on", *left_out)}


def chain(*kernels: Kernel) -> dict[str, int]:
    """All that follows from the source of some kernels. Those in the cache are not compiled again."""
    builds = {f"build_{kernel.family}_{toolkit}": 1 for kernel in kernels for toolkit in kernel.platform.toolkits}
    families = {kernel.family for kernel in kernels}
    ids = {kernel.id for family in families for kernel in registry.kernels(family)}
    running = {family for family in FAMILIES for each in experiments.declared(family) if ids & set(each.kernels)}
    return builds | GATES | {f"experiments_{family}": 1 for family in running} | figures(*running) | rows(*families)


def using(path: str) -> list[Kernel]:
    """The kernels that are compiled from a source or a header."""
    return [
        kernel for kernel in registry.kernels() if path in (f"{kernel.family}/{kernel.source}", *kernel.code.headers)
    ]


@dataclass(frozen=True)
class Edit:
    """In `file`, the first `old` becomes `new`; Snakemake must plan `jobs` by rule, and nothing else.

    `dated`: whether the file keeps its time, as after `rsync -a` or an unpacked archive.
    """

    name: str
    file: str
    old: str
    new: str
    jobs: dict[str, int] = field(default_factory=dict)
    dated: bool = False

    @contextmanager
    def made_in(self, folder: Path) -> Iterator[None]:
        """The edit, undone afterwards: content and times."""
        path = folder / self.file
        before, times = path.read_text(), path.stat()
        assert self.old in before, f"{self.file} holds no {self.old!r}"
        path.write_text(before.replace(self.old, self.new, 1))
        if self.dated:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


LADDER, RECORDING = "kernels/ladder", "reports/recorded/h200"

EDITS = [
    # Words rerun nothing but the pages that show them.
    Edit("a comment in the library", f"{LIBRARY}/registry/records.py", "@dataclass", "# A comment.\n@dataclass"),
    Edit("a docstring in the library", f"{LIBRARY}/core/files.py", '"""Write `value`', '"""Writes `value`'),
    Edit("a touch of a source", f"{LADDER}/1_naive.cu", "\n", "\n"),
    Edit("the README", "README.md", "\n", "\n\n"),
    Edit("the builder of images", f"{LIBRARY}/host/sif.py", "\ndef image_step", "\nUNUSED = 1\n\n\ndef image_step"),
    Edit("a comment in a source", f"{LADDER}/1_naive.cu", "\n", "\n// An edit.\n", REPORT),
    Edit("findings", f"{LADDER}/findings.md", "\n", "\n\n", REPORT),
    Edit("the template", "reports/template/index.html.j2", "\n", "\n\n", REPORT),
    # Sources and compilers.
    Edit("a source", f"{LADDER}/1_naive.cu", "{\n", "{\n;\n", chain(*using("ladder/1_naive.cu"))),
    Edit(
        "a source with its old time", f"{LADDER}/1_naive.cu", "{\n", "{\n;\n", chain(*using("ladder/1_naive.cu")), True
    ),
    Edit("a shared header", "kernels/common/wgmma_int8.cuh", "{\n", "{\n;\n", chain(*using("common/wgmma_int8.cuh"))),
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
    # Gates.
    Edit(
        "a tolerance of the ceilings",
        f"{LIBRARY}/gates/ceilings.py",
        "WGMMA_TOLERANCE = ",
        "WGMMA_TOLERANCE = 2 * ",
        GATES,
    ),
    # Recordings and their form.
    Edit(
        "a recorded verdict",
        f"{RECORDING}/ladder/gates.json",
        "\n",
        "\n\n",
        here(GATES | rows("ladder"), "recorded_regimes"),
    ),
    Edit(
        "recorded rows with their old time",
        f"{RECORDING}/ladder/summary.csv",
        "\n",
        "\n\n",
        here(rows("ladder"), "recorded_regimes"),
        True,
    ),
    Edit("another GPU's recorded rows", f"reports/recorded/{OTHER_GPU}/ladder/summary.csv", "\n", "\n\n", ELSEWHERE),
    Edit(
        "a recorded take",
        f"{RECORDING}/hopper/regimes/1/summary.csv",
        "\n",
        "\n\n",
        here({"recorded_regimes": 1} | VERDICTS),
    ),
    Edit(
        "a column's least value",
        f"{LIBRARY}/measure/columns.py",
        "least=1)",
        "least=2)",
        # Columns of experiments are checked as these are.
        rows(*FAMILIES) | {f"experiments_{family}": 1 for family in FAMILIES if experiments.declared(family)},
    ),
    # Claims, figures and the paper.
    Edit(
        "a claim's tolerance",
        "articles/ladder/claims.yaml",
        "tolerance: ",
        "tolerance: 9",
        figures("ceilings", "hopper", "ladder") | VERDICTS,
        True,
    ),
    Edit(
        "a published value",
        "articles/ladder/numbers.csv",
        "309,",
        "310,",
        figures("ceilings", "hopper", "ladder") | VERDICTS,
    ),
    Edit("a rate of a chip", "kernels/chips.yaml", "38.7", "38.8", rows(*FAMILIES)),
    Edit(
        "a rule of judgement", f"{LIBRARY}/judge/rules.py", '"reproduced"', '"confirmed"', figures(*FAMILIES) | VERDICTS
    ),
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
    assert planned(folder, *RECORDED) == {}
    return folder


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_reruns_what_reads_it_and_nothing_else(edit: Edit, touched: Path) -> None:
    with edit.made_in(touched):
        assert planned(touched, *RECORDED) == edit.jobs


def test_what_an_image_is_made_of_builds_it_again_and_no_other(touched: Path) -> None:
    """An instruction, or a version in the lock of Debian's packages, which is one file for all images."""
    (touched / "resources/images").mkdir(parents=True, exist_ok=True)
    for env in ("cuda12", "cuda13", "report"):
        (touched / f"resources/images/{env}.sif").write_bytes(HEADER.pack(b"SIF_MAGIC\0", HEADER.size, 0))
        (touched / f"resources/images/{env}.lock.json").write_text("{}")
    touch = snakemake("--touch", "--forceall", *RECORDED, "--", "images", folder=touched)
    assert touch.returncode == 0, touch.stdout
    assert planned(touched, *RECORDED, "--", "images") == {}
    for new, jobs in (("# A comment.", {}), ("LABEL edited=1", {"image_report": 1, "images": 1})):
        with Edit("", "docker/report.Dockerfile", "\nFROM", f"\n{new}\nFROM").made_in(touched):
            assert planned(touched, *RECORDED, "--", "images") == jobs
    lock = json.loads((touched / LOCK).read_text())
    report = lock["environments"]["report"]["debs"]
    report[0] = report[0].replace("_", "_1", 1)
    lock["sha256"] |= {report[0]: "0" * 64}
    (touched / LOCK).write_text(json.dumps(lock))
    assert planned(touched, *RECORDED, "--", "images") == {"image_report": 1, "images": 1}


def test_what_was_compiled_once_is_compiled_whole_when_asked(touched: Path) -> None:
    """Of those kernels there is a record with the build key, and no binary."""
    assert planned(touched, *RECORDED, "--", "build") in ({}, {"build": 1})
    jobs = planned(touched, *RECORDED, "compiled_once=[]", "--", "build")
    assert "build_crt_cuda12" in jobs and [name for name in jobs if name.startswith("build_cute_cuda12")] != []
