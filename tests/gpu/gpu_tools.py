"""How the tests on a GPU run the project's stages, and what runs on it."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.build import key
from gemmrepro.core.architectures import pick_arch
from gemmrepro.errors import UserError
from gemmrepro.gpu import device, loaded

ROOT = Path(__file__).resolve().parents[2]


def stage(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run one of the project's stages as the workflow does."""
    path = os.pathsep.join(filter(None, (str(ROOT / "workflow"), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "gemmrepro", name, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


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


def on_a_stream_of_its_own(session: device.Session) -> device.Session:
    """The session with another stream and with no workspace yet."""
    import cupy
    from cuda import core

    other = copy.copy(session)
    other.stream, other.workspace = cupy.cuda.Stream(non_blocking=True), None
    other.core_stream = core.Stream.from_handle(other.stream.ptr)
    return other
