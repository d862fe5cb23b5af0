"""The flake for real: Debian's own Nix in an overlay over this machine, which stays as it is."""

import json
import os
import re
from pathlib import Path

import pytest
from support import ROOT, call, copy_sources

from gemmrepro.core.names import TOOLKITS
from gemmrepro.host.builders import limit_options
from gemmrepro.host.containers import container_environment, make_caches

pytestmark = pytest.mark.containers

HERE = Path(__file__).parent
KERNEL = "ladder.naive"


@pytest.fixture(scope="module")
def made(folder: Path, in_overlay) -> Path:
    """A copy of the repository in which Nix has built: a kernel a toolkit (out-cuda12, out-cuda13), a SIF
    (out-report-sif) and an OCI archive (out-report-oci).

    The development shell, without PyTorch, has left there what `in_development_shell` makes.
    """
    copy = folder / "gemmrepro"
    copy_sources(copy)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):  # a flake is what git tracks
        assert call(command, copy).returncode == 0
    (copy / "built").mkdir()
    # --rebuild and flake check are among its steps: a difference or a failed check ends it.
    in_overlay(folder / "overlay", HERE / "nix_session", copy, folder / "files")
    return copy


def test_kernels_are_the_containers_byte_for_byte(made: Path, default_run: str) -> None:
    for toolkit in TOOLKITS:
        for suffix in ("fatbin", "sass", "json"):
            ours = (made / f"out-{toolkit}" / f"{KERNEL}.{suffix}").read_bytes()
            assert ours == (ROOT / f"results/build/{toolkit}/{KERNEL}.{suffix}").read_bytes(), f"{toolkit} {suffix}"


def test_apptainer_runs_the_image(made: Path) -> None:
    environment = os.environ | container_environment(os.environ)
    make_caches(environment)
    show = "import os, sys, json, pandas; print(sys.executable, os.environ['PATH'].split(':')[0]);"
    show += "print(json.load(open('/.singularity.d/labels.json'))['org.opencontainers.image.title'])"
    run = ["apptainer", "exec", "--cleanenv", "--no-home", "--pwd", "/", str(made / "out-report-sif")]
    done = call([*run, "python3", "-c", show], **environment)
    said = ["/opt/venv/bin/python3", "/opt/venv/bin", "gemmrepro-report"]
    assert done.returncode == 0 and done.stdout.split()[-3:] == said, done.stdout


# crun, podman's default, refuses hybrid control groups.
@pytest.mark.parametrize(("engine", "called"), [("docker", "docker"), ("podman", "podman --runtime runc")])
def test_an_engine_loads_and_runs_the_oci_archive(engine, called, made: Path, folder: Path, in_overlay) -> None:
    own = folder / engine
    own.mkdir()
    show = "import os, sys, pandas; print(sys.executable, os.environ['PATH'].split(':')[0], os.getuid())"
    load = [HERE / "load_image", called, made / "out-report-oci", "python3", "-c", show]
    options = " ".join(limit_options(engine))
    done = in_overlay(own / "overlay", HERE / "engine", engine, own, *load, RUN_OPTIONS=options)
    said = ["localhost/gemmrepro-report:nix", "gemmrepro-report", "/opt/venv/bin/python3", "/opt/venv/bin", "0"]
    assert done.stdout.split() == said
    assert (own / "left").read_text().strip() == "", "the image stayed behind"


def test_the_development_shell_has_every_tool_and_the_locked_packages(made: Path) -> None:
    programs = (made / "programs.txt").read_text()
    for line in programs.splitlines():
        assert re.fullmatch(r"\S+ (/nix/store/\S+/bin/\S+|says .*\d)", line), line
    apptainer = re.findall(
        r"^apptainer (\S+)-\d+ ", (made / "envs/requirements/apptainer.txt").read_text(), re.MULTILINE
    )
    assert f"apptainer says apptainer version {apptainer[0]}\n" in programs

    files = json.loads((made / "nix/sources.json").read_text())["environments"]["host"]["python"]
    locked = {normal("==".join(file.removesuffix(".tar.gz").split("-")[:2])) for file in files}
    assert len(locked) > 100
    assert locked - {normal(line) for line in (made / "packages.txt").read_text().split()} == set()


def test_the_development_shell_plans_the_default_run_and_gates_a_kernel(made: Path) -> None:
    plan = (made / "plan.txt").read_text()
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", plan, re.MULTILINE)}
    assert {"verdicts", "report", "build_ladder_cuda13"} <= jobs.keys(), plan[-4000:]
    assert jobs["total"] == sum(jobs.values()) - jobs["total"]
    assert json.loads((made / f"results/gates/{KERNEL}.json").read_text())["kernel"] == KERNEL
    for toolkit in TOOLKITS:
        ours = (made / f"results/build/{toolkit}/{KERNEL}.fatbin").read_bytes()
        assert ours == (made / f"out-{toolkit}" / f"{KERNEL}.fatbin").read_bytes(), toolkit


def normal(requirement: str) -> str:
    """A requirement as the index writes names (packaging.python.org, Name normalization)."""
    name, version = requirement.split("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
