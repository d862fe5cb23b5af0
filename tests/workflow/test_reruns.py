"""What an edit reruns. Every output is faked and touched, one file is edited, and Snakemake says what it would do.

No container and no GPU is needed, and nothing runs: the plan is Snakemake's own.
"""

import json
import os
from collections import namedtuple
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from support import copy_sources, planned, snakemake

from gemmrepro import experiments, registry
from gemmrepro.core import names
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.host.recipes import LOCK
from gemmrepro.host.runs import HEADER
from gemmrepro.measure import regimes as regime_files
from gemmrepro.registry import Kernel

RECORDED = ("--config", "measure=recorded")
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


LADDER, ALL = rows("ladder"), rows(*FAMILIES)
JOBS = {
    "nothing": {},
    "the report": REPORT,
    "verdicts elsewhere": ELSEWHERE,
    "gates": GATES,
    "naive and its twins": chain(*using("ladder/1_naive.cu")),
    "residues": chain(*using("common/wgmma_int8.cuh")),
    "ladder's rows": LADDER,
    "ladder.cut's rows, gates and releases": {"gate_recorded": 1, "experiments_fp8": 1} | figures("fp8") | LADDER,
    "gates and ladder's rows here": here(GATES | LADDER, "recorded_regimes"),
    "ladder's rows here": here(LADDER, "recorded_regimes"),
    "a take": here({"recorded_regimes": 1} | VERDICTS),
    "all rows": ALL,
    "all rows and experiments": ALL | {f"experiments_{name}": 1 for name in FAMILIES if experiments.declared(name)},
    "verdicts and their figures": figures("ceilings", "hopper", "ladder") | VERDICTS,
    "verdicts and all figures": figures(*FAMILIES) | VERDICTS,
    "settings": {"settings": 1} | REPORT,
}
"""By the words of reruns.yaml: jobs by rule."""

Edit = namedtuple("Edit", "name file old new jobs dated", defaults=("nothing", ""))
EDITS = [Edit(*row) for row in yaml.safe_load(Path(__file__).with_name("reruns.yaml").read_text())]


@contextmanager
def made_in(folder: Path, edit: Edit) -> Iterator[None]:
    """The edit, undone afterwards: content and times."""
    path = folder / edit.file
    before, times = path.read_text(), path.stat()
    assert edit.old in before, f"{edit.file} holds no {edit.old!r}"
    path.write_text(before.replace(edit.old, edit.new, 1))
    if edit.dated:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        yield
    finally:
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


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


def test_words_and_what_no_job_reads_rerun_nothing(touched: Path) -> None:
    with ExitStack() as made:
        for edit in EDITS:
            if edit.jobs == "nothing":
                made.enter_context(made_in(touched, edit))
        assert planned(touched, *RECORDED) == {}


@pytest.mark.parametrize("edit", [each for each in EDITS if each.jobs != "nothing"], ids=lambda edit: edit.name)
def test_an_edit_reruns_what_reads_it_and_nothing_else(edit: Edit, touched: Path) -> None:
    with made_in(touched, edit):
        assert planned(touched, *RECORDED) == JOBS[edit.jobs]


def test_what_an_image_is_made_of_builds_it_again_and_no_other(touched: Path) -> None:
    """An instruction, or a version in the lock of Debian's packages, which is one file for all images."""
    (touched / "resources/images").mkdir(parents=True, exist_ok=True)
    for env in ("cuda12", "cuda13", "report"):
        (touched / f"resources/images/{env}.sif").write_bytes(HEADER.pack(b"SIF_MAGIC\0", HEADER.size, 0))
        (touched / f"resources/images/{env}.lock.json").write_text("{}")
    touch = snakemake("--touch", "--forceall", *RECORDED, "--", "images", folder=touched)
    assert touch.returncode == 0, touch.stdout
    assert planned(touched, *RECORDED, "--", "images") == {}
    for new, jobs in (("# A comment.", {}), ("LABEL edited=1", {"image": 1, "images": 1})):
        with made_in(touched, Edit("", "docker/report.Dockerfile", "\nFROM", f"\n{new}\nFROM")):
            assert planned(touched, *RECORDED, "--", "images") == jobs
    lock = json.loads((touched / LOCK).read_text())
    report = lock["environments"]["report"]["debs"]
    report[0] = report[0].replace("_", "_1", 1)
    lock["sha256"] |= {report[0]: "0" * 64}
    (touched / LOCK).write_text(json.dumps(lock))
    plan = snakemake("--dry-run", *RECORDED, "--", "images", folder=touched).stdout
    assert plan.count("the container image ") == plan.count("the container image report") == 1, plan


def test_what_was_compiled_once_is_compiled_whole_when_asked(touched: Path) -> None:
    """Of those kernels there is a record with the build key, and no binary."""
    assert planned(touched, *RECORDED, "--", "build") in ({}, {"build": 1})
    jobs = planned(touched, *RECORDED, "compiled_once=[]", "--", "build")
    assert "build_crt_cuda12" in jobs and [name for name in jobs if name.startswith("build_cute_cuda12")] != []
