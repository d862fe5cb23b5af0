"""How the tests call programs in the repository."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gemmrepro.host.containers import container_environment, make_caches

ROOT = Path(__file__).resolve().parents[1]


def call(command: list[str], folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in `folder`; its stdout holds both streams."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def in_cuda13(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in the CUDA 13 container, as a rule would; it sees the repository and `folder`."""
    environment = container_environment(os.environ)
    make_caches(os.environ | environment)
    image = str(ROOT / "resources/images/cuda13.sif")
    apptainer = ["apptainer", "exec", "--bind", f"{ROOT},{folder}", image]
    return call([*apptainer, *command], **environment, PYTHONPATH=str(ROOT / "workflow"))


def snakemake(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return call(["snakemake", "--cores", str(os.cpu_count()), *arguments], folder, **environment)


def planned(folder: Path, *arguments: str) -> dict[str, int]:
    """Jobs that a dry run would do, by rule."""
    plan = snakemake("--dry-run", *arguments, folder=folder)
    assert plan.returncode == 0, plan.stdout
    if "Nothing to be done" in plan.stdout:
        return {}
    table = plan.stdout.split("Job stats:")[1].split("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.M) if name != "all"}


def in_image(sif: Path, path: str) -> str:
    """A file in an image."""
    query = ["unsquashfs", "-o", "32768", "-cat", str(sif), path]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout


def copy_sources(target: Path) -> None:
    """Copy what git tracks, or would: the sources without anything generated."""
    for name in filter(
        None, call(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]).stdout.split("\0")
    ):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@contextmanager
def alone(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Hold this session's lock `name`, whichever worker asks; gives the folder that all workers share."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared
