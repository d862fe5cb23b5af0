"""A finished run as an RO-Crate: a small run of Snakemake, described and validated."""

import hashlib
import json
from argparse import Namespace
from pathlib import Path

import pytest
from support import snakemake

from gemmrepro.core import names
from gemmrepro.errors import UserError
from gemmrepro.host import crate
from gemmrepro.host.crate import jobs_behind

RULES = """
rule report:
    input: "results/verdicts.json", "results/build/a.fatbin"
    output: pages=PAGES, folders=directory(FOLDERS)
    shell: "tee {output.pages} < {input[1]}; for folder in {output.folders}; do mkdir $folder; cp {input} $folder; done"

rule verdicts:
    input: "kernels/claims.yaml"
    output: "results/verdicts.json", "results/LONG.csv"
    shell: "cp {input} {output[0]}; cp {input} {output[1]}"

rule compile:
    input: "kernels/a.cu"
    output: "results/build/a.fatbin"
    shell: "cp {input} {output}"

rule unused:
    output: "results/other.txt"
    shell: "touch {output}"
"""

LONG = "/".join(["folder" * 20] * 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose report rests on two other jobs; another job made what nothing reads."""
    folder = tmp_path_factory.mktemp("run")
    pages = [f"reports/{page}.html" for page in names.REPORT_PAGES]
    folders = [f"reports/{name}" for name in names.REPORT_FOLDERS]
    rules = RULES.replace("LONG", LONG).replace("PAGES", repr(pages)).replace("FOLDERS", repr(folders))
    (folder / "Snakefile").write_text(rules)
    (folder / "kernels").mkdir()
    (folder / "kernels/a.cu").write_text("kernel")
    (folder / "kernels/claims.yaml").write_text("claims: []")
    run = snakemake("reports/index.html", f"results/{LONG}.csv", "results/other.txt", folder=folder)
    assert run.returncode == 0, run.stdout
    return folder


def write(folder: Path, out: Path) -> int:
    return crate.main(Namespace(out=out), folder)


def test_the_jobs_behind_a_file_are_found_and_records_of_long_paths_joined(finished: Path) -> None:
    jobs = {job.rule: job for job in jobs_behind(["reports/index.html"], finished)}
    assert sorted(jobs) == ["compile", "report", "verdicts"]
    assert jobs["compile"].command == "cp kernels/a.cu results/build/a.fatbin"
    assert jobs["compile"].start <= jobs["compile"].end <= jobs["report"].end
    long = f"results/{LONG}.csv"
    (job,) = jobs_behind([long, "results/verdicts.json"], finished)
    assert set(job.outputs) == {long, "results/verdicts.json"}


def test_every_job_is_an_action_with_its_files(finished: Path, tmp_path: Path) -> None:
    written = tmp_path / "crate"
    assert write(finished, written) == 0
    graph = json.loads((written / "ro-crate-metadata.json").read_text())["@graph"]
    known = {entity["@id"]: entity for entity in graph}
    action = known["#job-compile-1"]
    digest = hashlib.sha256(b"kernel").hexdigest()
    assert (action["@type"], action["object"]) == ("CreateAction", {"@id": "kernels/a.cu"})
    assert known["kernels/a.cu"]["sha256"] == digest
    # The binary is named by its hash, and not copied.
    result = action["result"]["@id"]
    assert result.startswith("ni:///sha-256;")
    assert known[result]["name"] == "results/build/a.fatbin"
    assert known[result]["sha256"] == digest
    assert not (written / "results/build").exists()
    assert (written / "kernels/a.cu").read_text() == "kernel"
    assert (written / "reports/index.html").is_file()
    assert known["reports/kernels/"]["@type"] == "Dataset"
    assert (written / "reports/kernels/a.fatbin").read_text() == "kernel"
    assert {each["@id"] for each in known["#job-report-1"]["result"]} >= {"reports/claims.html", "reports/kernels/"}
    assert not any("other.txt" in name for name in known)
    steps = [step["@id"] for step in known["Snakefile"]["step"]]
    assert sorted(steps) == [f"Snakefile#{rule}" for rule in ("compile", "report", "verdicts")]
    assert {each["@id"] for each in known["#run"]["result"]} >= {"reports/index.html", "results/verdicts.json"}


def test_an_unfinished_run_and_a_file_that_is_gone_are_said(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run the target 'all' first"):
        write(tmp_path, tmp_path / "crate")
    source = (finished / "kernels/a.cu").rename(tmp_path / "a.cu")
    with pytest.raises(UserError, match=r"kernels/a\.cu is missing"):
        write(finished, tmp_path / "crate")
    source.rename(finished / "kernels/a.cu")
