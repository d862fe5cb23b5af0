"""What the tests on a GPU share: the open GPU, binaries built for it, and binaries of sources changed on purpose."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_tools import ROOT, stage

from gemmrepro import build, gpu, registry
from gemmrepro.errors import UserError


@pytest.fixture(scope="session")
def session() -> gpu.Session:
    try:
        return gpu.open_gpu()
    except UserError as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(scope="session")
def toolkit() -> str:
    """The toolkit on PATH, cuda12 or cuda13."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return "cuda" + re.search(r"release (\d+)\.", text)[1]


def current(folder: Path, toolkit: str) -> bool:
    """Whether `folder` holds every kernel, compiled from today's sources by whatever version of `toolkit`."""
    for kernel in registry.kernels():
        try:
            record = json.loads((folder / toolkit / f"{kernel.id}.json").read_text())
        except (OSError, ValueError):
            return False
        if record["build_key"] != build.build_key(kernel, record["toolkit_version"]):
            return False
    return True


@pytest.fixture(scope="session")
def built(session: gpu.Session, toolkit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder with every kernel for this GPU: the workflow's where it is current, else made here."""
    if current(ROOT / "results" / "build", toolkit):
        return ROOT / "results" / "build"
    folder = tmp_path_factory.mktemp("build")
    number = session.gpu.arch.removeprefix("sm_")
    for kernel in registry.kernels():
        answer = stage(
            *("build", "--kernel", kernel.id, "--toolkit", toolkit, "--archs", number, "--out", folder / toolkit)
        )
        assert answer.returncode == 0, answer.stderr
    return folder


@pytest.fixture(scope="session")
def compiled(session: gpu.Session, toolkit: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a kernel from a changed text of its source; returns the fat binary's path."""

    def make(kernel: registry.Kernel, text: str) -> Path:
        folder = tmp_path_factory.mktemp("changed")
        source = folder / kernel.source
        source.write_text(text)
        number = (kernel.targets or (session.gpu.arch.removeprefix("sm_"),))[0]
        target = f"-gencode=arch=compute_{number},code=sm_{number}"
        command = ["nvcc", *build.COMMON_FLAGS, *build.defines(kernel), target, "-I", str(ROOT / "kernels"), "-o"]
        subprocess.run([*command, str(folder / "changed.fatbin"), str(source)], check=True)
        return folder / "changed.fatbin"

    return make
