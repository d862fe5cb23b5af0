"""How the tests on a GPU run the project's stages, and what runs on it."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.build import key
from gemmrepro.core.architectures import pick_arch
from gemmrepro.errors import UserError
from gemmrepro.gpu import device, loaded
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape

ROOT = Path(__file__).resolve().parents[2]


def stage_process(name: str, *arguments: object) -> dict[str, object]:
    """The arguments of `subprocess` that start one of the project's stages."""
    path = os.pathsep.join(filter(None, (str(ROOT / "workflow"), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "gemmrepro", name, *map(str, arguments)]
    return {"args": command, "env": {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}}


def stage(name: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run one of the project's stages as the workflow does."""
    return subprocess.run(**stage_process(name, *arguments), capture_output=True, text=True, **options)


def gated(kernel_id: str, toolkit: str, built: Path, gates: Path) -> None:
    """Judge a kernel as it was built; its verdict comes into `gates`."""
    numeric = gates / "numeric"
    answer = stage(
        "judge-numbers", "--kernels", kernel_id, "--build", built, "--seeds", 1, "--out", numeric / f"{kernel_id}.json"
    )
    assert answer.returncode == 0, answer.stderr
    arguments = ("--kernels", f"{kernel_id}={toolkit}", "--build", built, "--numeric", numeric, "--out", gates)
    answer = stage("gates", *arguments)
    assert answer.returncode == 0, answer.stderr
    assert json.loads((gates / f"{kernel_id}.json").read_text())["passed"], answer.stdout


def runs(kernel: registry.Kernel, session: device.Session) -> bool:
    """Whether `kernel` has machine code for the GPU at hand."""
    archs = [f"sm_{target}" for target in kernel.platform.targets] or [session.gpu.arch]
    capability = session.gpu.compute_capability
    if any(session.gpu.arch.removeprefix("sm_") in refusal.archs for refusal in kernel.promises.refusals):
        return False
    return capability >= kernel.platform.min_capability and pick_arch(archs, capability) is not None


def compiles(kernel: registry.Kernel) -> bool:
    """Whether the packages that `kernel` is compiled by or with are installed."""
    try:
        key.compiler(kernel).packages(kernel)
    except UserError:
        return False
    return True


def load(kernel: registry.Kernel, session: device.Session, built: Path, toolkit: str) -> loaded.Loaded:
    """A kernel as it was built; the test is skipped where it cannot run."""
    if toolkit not in kernel.platform.toolkits or not runs(kernel, session):
        pytest.skip(f"{kernel.id} does not run on the {session.gpu.name}")
    if not (built / toolkit / f"{kernel.id}.json").is_file():
        pytest.skip(f"{kernel.id} was not built for {toolkit}")
    return loaded.Loaded.built(session, kernel, built, toolkit)


def fp64_operands(kernel: registry.Kernel, a: np.ndarray, b: np.ndarray) -> Operands:
    """A and B on the GPU, and a C of NaN."""
    import cupy

    shape = Shape(a.shape[0], b.shape[1], a.shape[1])
    c = cupy.full(shape.m * shape.n, cupy.nan)
    return Operands(kernel.problem, shape, (cupy.asarray(a).ravel(), cupy.asarray(b).ravel()), c)


def on_a_stream_of_its_own(session: device.Session) -> device.Session:
    """The session with another stream and with no workspace yet."""
    import cupy
    from cuda import core

    other = copy.copy(session)
    other.stream, other.workspace = cupy.cuda.Stream(non_blocking=True), None
    other.core_stream = core.Stream.from_handle(other.stream.ptr)
    return other
